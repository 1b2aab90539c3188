"""Tests of logs that are followed through a proxy that breaks, on a laptop cluster.

Each line is reported once.
"""

from __future__ import annotations

import random
import threading
import time

import pytest

from tests.integration.client.logs.log_recorder import SECONDS, LogRecorder, compare_lines
from tests.support.polling import wait_until
from trainjob.client import Backoff, LogFollower, ObjectEvent
from trainjob.client.bounded_executor import BoundedExecutor
from trainjob.client.log_lines import LogReader

NUMBERS = [str(n) for n in range(1, 1001)]
SLOW_SCRIPT = "for i in $(seq 1 1000); do echo $i; [ $((i % 100)) != 0 ] || sleep 0.1; done"


@pytest.mark.slow
def test_a_stream_that_is_cut_at_each_of_its_bytes(recorder, proxy, proxied_cluster, evidence):
    name = recorder.pod("echo one; printf '\\033[1mtwo\\r'; echo 2; echo; printf 'caf\u00e9 \u2588'")
    recorder.until_ended(name)
    proxied_cluster.ended_logs = BoundedExecutor("ended-log", 40)
    pod, written = recorder.behind.get_pod(name, "default"), ["one", "2", "", "caf\u00e9 \u2588"]
    before = proxy.passed
    told = read_ended_pod(proxied_cluster, pod)
    size = proxy.passed - before
    assert told == written
    proxy.cuts = list(range(1, size))
    followers = [EndedPodReader(proxied_cluster, pod) for _ in range(size - 1)]
    counts = [compare_lines(one.read_to_end(), written) for one in followers]
    assert not proxy.cuts
    total = {key: sum(count[key] for count in counts) for key in counts[0]}
    evidence("logs", fault=f"connection cut after each byte of an answer ({size - 1} streams)", **total)
    assert (total["lost"], total["repeated"]) == (0, 0)


class EndedPodReader:
    """Reads the log of a pod that has ended."""

    def __init__(self, cluster, pod):
        self.lines = []
        self.follower = LogFollower(cluster, "default", self.lines.append)
        self.follower.observe(ObjectEvent(pod))

    def read_to_end(self):
        self.follower.finish(SECONDS)
        return [line.text for line in self.lines if not line.frame]


def read_ended_pod(cluster, pod):
    return EndedPodReader(cluster, pod).read_to_end()


def test_a_live_log_whose_stream_is_cut_again_and_again(recorder, proxy, evidence):
    recorder.emit = lambda line: proxy.break_all() if line.text.endswith("50") else None
    name = recorder.pod(SLOW_SCRIPT)
    recorder.until_ended(name)
    recorder.follower.finish(SECONDS)
    counts = compare_lines(recorder.texts(), NUMBERS)
    evidence("logs", fault=f"connection of a running container's log reset, {proxy.streams} streams", **counts)
    assert recorder.texts() == NUMBERS
    assert proxy.streams > 2


def test_a_token_that_is_rotated_while_a_log_is_followed(recorder, proxy, tmp_path, evidence):
    first, second = tmp_path / "first", tmp_path / "second"
    script = [f"until [ -e {gate} ]; do sleep 0.05; done" for gate in (first, second)]
    name = recorder.pod(f"seq 100; {script[0]}; seq 101 300; {script[1]}; seq 301 1000")
    recorder.until_told("100")
    proxy.rotate("second")
    proxy.renew()
    proxy.break_all()
    first.touch()
    recorder.until_told("300")
    proxy.rotate("third")  # and the new one comes late
    streams, refused = proxy.streams, proxy.refused
    proxy.break_all()
    wait_until(lambda: proxy.refused > refused, SECONDS)
    proxy.renew()
    second.touch()
    recorder.until_told("1000")
    assert proxy.streams > streams
    recorder.until_ended(name)
    recorder.follower.finish(SECONDS)
    evidence("logs", fault="token rotated in mid-stream, twice", **compare_lines(recorder.texts(), NUMBERS))
    assert recorder.texts() == NUMBERS


def test_who_pauses_after_trouble_comes_back_when_its_container_has_ended(recorder, proxy, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(Backoff, "next", lambda *_: pauses.append(3600.0) or 3600.0)
    name = recorder.pod(f"echo 1; until [ -e {tmp_path}/go ]; do sleep 0.1; done; echo 2")
    recorder.until_told("1")
    proxy.break_all()
    wait_until(lambda: pauses, SECONDS)
    (tmp_path / "go").touch()
    recorder.until_ended(name)
    recorder.follower.finish(20.0)
    assert recorder.texts() == ["1", "2"]


def test_a_slow_reader_holds_the_server_back_and_nobody_else(
    recorder, proxy, proxied_cluster, cluster, unique, tmp_path, evidence
):
    big, others = [f"{n:01000d}" for n in range(1, 30_001)], [str(n) for n in range(1, 11)]
    may_go, stuck = threading.Event(), threading.Event()

    def block(line):
        stuck.set()
        assert may_go.wait(SECONDS)

    recorder.emit = block
    with LogRecorder(proxied_cluster, cluster, unique + "x") as other:
        slow = recorder.pod("seq -f %01000.0f 30000")
        assert stuck.wait(SECONDS)
        recorder.until_ended(slow)  # and the watch continues
        quick = other.create_pod("seq 10")
        other.wait_for_lines("10")
        other.wait_until_ended(quick)
        other.follower.finish(SECONDS)
        assert other.whole_lines() == others
        passed = proxy.passed
        assert passed < 20 << 20  # what sockets hold; the log has 30 MB
        may_go.set()
        recorder.follower.finish(SECONDS)
    counts = compare_lines(recorder.texts() + other.whole_lines(), big + others)
    evidence("logs", fault=f"reader that stopped reading, at {passed >> 20} MiB of 30", **counts)
    assert recorder.texts() == big


def test_binary_garbage_and_lines_of_ten_megabytes(recorder, proxy, tmp_path, evidence):
    dice = random.Random(5)  # noqa: S311 - the same each time
    garbage = dice.randbytes(300_000) + b"\n"
    long = b"abcdefghijklmno\xc3\xa9 " * 600_000 + b"\n"
    (tmp_path / "log").write_bytes(garbage + long + b"end\n")
    proxy.cuts = [100_000, 2_000_000, 7_000_000]
    name = recorder.pod(f"cat {tmp_path}/log")
    recorder.until_ended(name)
    recorder.follower.finish(SECONDS)
    written = []
    for line in (garbage + long + b"end\n").split(b"\n")[:-1]:
        shown = [part for part in line.split(b"\r") if part]
        written.append((shown[-1] if shown else b"").decode(errors="replace"))
    assert not proxy.cuts
    fault = "300 kB of random bytes and a line of 10 MB, cut 3 times"
    evidence("logs", fault=fault, **compare_lines(recorder.texts(), written))
    assert recorder.texts() == written


@pytest.mark.slow
def test_a_container_that_is_restarted_at_once_and_then_with_longer_and_longer_pauses(recorder, tmp_path, evidence):
    """The last pause is longer than a stream's end is taken for the container's."""
    script = f"echo x >> {tmp_path}/runs; n=$(wc -l < {tmp_path}/runs); seq -f run-$n-%g 50; sleep 0.3; exit $((n < 5))"
    name = recorder.pod(script, restart="OnFailure")
    recorder.until_ended(name)
    recorder.follower.finish(SECONDS)
    written = [f"run-{run}-{n}" for run in range(1, 6) for n in range(1, 51)]
    evidence("logs", fault="container restarted 4 times, with a back-off", **compare_lines(recorder.texts(), written))
    assert sorted(recorder.texts()) == sorted(written)


def test_a_restart_between_a_pods_news_and_the_opening_of_its_log(
    recorder, proxied_cluster, tmp_path, monkeypatch, evidence
):
    """What is opened is the next run's log then."""
    open_log, runs, held = proxied_cluster.open_log, tmp_path / "runs", []

    def open_late(*arguments, **more):
        if not held:
            held.append(wait_until(lambda: runs.exists() and runs.read_text() == "xx", SECONDS))
        return open_log(*arguments, **more)

    monkeypatch.setattr(proxied_cluster, "open_log", open_late)
    go = tmp_path / "go"
    work = f"seq -f run-$n-%g 50; [ $n = 1 ] || while [ ! -e {go} ]; do sleep 0.05; done; exit $((n < 2))"
    name = recorder.pod(f"printf x >> {runs}; n=$(wc -c < {runs}); {work}", restart="OnFailure")
    wait_until(lambda: recorder.behind.get_pod(name, "default")["status"].get("containerStatuses"), SECONDS)
    written = [f"run-{run}-{n}" for run in (1, 2) for n in range(1, 51)]
    wait_until(lambda: len(recorder.texts()) >= len(written), SECONDS)
    go.touch()
    recorder.until_ended(name)
    recorder.follower.finish(SECONDS)
    evidence("logs", fault="restart before its log was opened", **compare_lines(recorder.texts(), written))
    assert sorted(recorder.texts()) == sorted(written)


class UnwatchedLogRecorder(LogRecorder):
    """Its follower hears of a pod's state when it is told, as one whose watch is late."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.follower.stop()

    def observe(self, name):
        self.follower.observe(ObjectEvent(self.direct.get_pod(name, "default")))

    def count_restarts(self, name, state):
        """Return how often a pod's container was restarted; None if it is not in this state."""
        [status] = self.direct.get_pod(name, "default")["status"].get("containerStatuses", [{}])
        return status["restartCount"] if state in status.get("state", {}) else None


def test_a_stream_that_is_opened_again_is_the_next_runs(
    proxied_cluster, cluster, unique, monkeypatch, tmp_path, evidence
):
    """The first run's stream ends before its pod's news come."""
    open_log, opened = proxied_cluster.open_log, []
    work = f"seq -f run-$n-%g 50; touch {tmp_path}/told-$n; until [ -e {tmp_path}/end-$n ]; do sleep 0.05; done"
    script = f"printf x >> {tmp_path}/runs; n=$(wc -c < {tmp_path}/runs); {work}; exit $((n < 2))"
    with UnwatchedLogRecorder(proxied_cluster, cluster, unique) as late:
        name = late.create_pod(script, restart="OnFailure")

        def open_late(*arguments, **more):
            opened.append(more)
            if len(opened) != 2:
                return open_log(*arguments, **more)
            wait_until(lambda: (tmp_path / "told-2").exists() and late.count_restarts(name, "running") == 1, SECONDS)
            stream = open_log(*arguments, **more)
            late.observe(name)
            return stream

        monkeypatch.setattr(proxied_cluster, "open_log", open_late)
        wait_until(lambda: late.count_restarts(name, "running") == 0, SECONDS)
        late.observe(name)
        late.wait_for_lines(50)
        (tmp_path / "end-1").touch()
        late.wait_for_lines(100)
        (tmp_path / "end-2").touch()
        late.wait_for_phase(name, ("Succeeded",))
        late.observe(name)
        late.follower.finish(SECONDS)
    written = [f"run-{run}-{n}" for run in (1, 2) for n in range(1, 51)]
    evidence(
        "logs",
        fault="container restarted before the log of its ended run was opened",
        **compare_lines(late.whole_lines(), written),
    )
    assert len(opened) > 2
    assert sorted(late.whole_lines()) == sorted(written)


@pytest.mark.slow
def test_a_container_that_waits_for_its_next_start_is_seen_late(proxied_cluster, cluster, unique, tmp_path, evidence):
    """Of the runs before its last one nobody has the log: what is there as the previous one's is the last's."""
    script = f"printf x >> {tmp_path}/runs; n=$(wc -c < {tmp_path}/runs); seq -f run-$n-%g 50; exit 1"
    with UnwatchedLogRecorder(proxied_cluster, cluster, unique) as late:
        name = late.create_pod(script, restart="OnFailure")
        wait_until(lambda: (late.count_restarts(name, "waiting") or 0) >= 4, SECONDS)  # pauses are long by now
        late.observe(name)
        run = late.count_restarts(name, "waiting") + 1
        late.wait_for_lines(50)
        late.follower.finish(SECONDS)
    written = [f"run-{run}-{n}" for n in range(1, 51)]
    evidence(
        "logs", fault="restarted container first seen while it waits", **compare_lines(late.whole_lines(), written)
    )
    assert late.whole_lines() == written


def test_pods_that_come_late_are_replaced_and_have_several_containers(recorder, evidence):
    first = recorder.pod("seq 20; sleep 600")
    recorder.until_told("20")
    recorder.delete(first)
    again = recorder.pod("seq 21 40", suffix="-b")  # as a Job names it
    recorder.until_told("40")
    late = recorder.pod("seq 41 60", rank=1, containers=("main", "sidecar"))
    recorder.until_ended(again, late)
    recorder.follower.finish(SECONDS)
    told = {source: recorder.texts(source) for source in recorder.lines}
    numbers = [str(n) for n in range(1, 61)]
    assert told == {"node-0": numbers[:40], "node-1/main": numbers[40:], "node-1/sidecar": numbers[40:]}
    lines = [line for lines in told.values() for line in lines]
    evidence(
        "logs", fault="pod replaced, pod late, two containers", **compare_lines(lines, numbers[:40] + 2 * numbers[40:])
    )


def test_more_logs_than_may_be_open(recorder, proxy, proxied_cluster, tmp_path, evidence):
    proxied_cluster.live_logs, proxied_cluster.ended_logs = BoundedExecutor("log", 2), BoundedExecutor("ended-log", 2)
    go = tmp_path / "go"
    script = f"seq 100; while [ ! -e {go} ]; do sleep 0.05; done; seq 101 200"
    names = [recorder.pod(script, rank=rank) for rank in range(8)]
    for name in names:
        recorder.until_phase(name)
    wait_until(lambda: sum(len(lines) for lines in recorder.lines.values()) >= 201, SECONDS)
    assert proxy.open <= 2
    go.touch()
    recorder.until_ended(*names)
    recorder.follower.finish(SECONDS)
    said = [line for source in recorder.lines for line in recorder.texts(source) if not line.isdigit()]
    assert len(said) == 1
    assert "2 logs are being followed already" in said[0]
    told = [[line for line in recorder.texts(f"node-{rank}") if line.isdigit()] for rank in range(8)]
    numbers = [str(n) for n in range(1, 201)]
    counts = compare_lines([line for lines in told for line in lines], numbers * 8)
    evidence("logs", fault="8 logs, 2 streams at most", **counts)
    assert told == [numbers] * 8


def test_logs_that_may_not_be_read_are_told_and_not_waited_for(recorder, trainjob_faults):
    trainjob_faults.answer(403, times=1000, verb="get", resource="pods/log")
    name = recorder.pod("echo one")
    recorder.until_ended(name)
    recorder.follower.finish(SECONDS)
    [line] = recorder.texts()
    assert "this log can't be read: no permission" in line


# -- stopping ---------------------------------------------------------------------------------------------------------


class HeldStream:
    """A stream that is held at its end."""

    def __init__(self, stream, end_reached, released):
        self._stream, self._end_reached, self._released = stream, end_reached, released

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def stream(self, **arguments):
        yield from self._stream.stream(**arguments)
        self._end_reached.set()
        assert self._released.wait(SECONDS)


def test_stopping_when_a_stream_has_just_ended(recorder, proxied_cluster, monkeypatch):
    ended, may_go = threading.Event(), threading.Event()
    open_log = proxied_cluster.open_log
    monkeypatch.setattr(proxied_cluster, "open_log", lambda *a, **k: HeldStream(open_log(*a, **k), ended, may_go))
    recorder.until_ended(recorder.pod("echo one"))
    assert ended.wait(SECONDS)
    recorder.follower.stop()
    may_go.set()


def test_stopping_when_a_stream_is_just_being_opened(recorder, proxy, proxied_cluster, monkeypatch):
    open_log = proxied_cluster.open_log

    def open_and_stop(*arguments, **more):
        stream = open_log(*arguments, **more)
        recorder.follower.stop()
        return stream

    monkeypatch.setattr(proxied_cluster, "open_log", open_and_stop)
    proxied_cluster.live_logs = BoundedExecutor("stopped", 1)
    recorder.pod("sleep 60")
    wait_until(lambda: proxy.streams, SECONDS)
    wait_until(lambda: "stopped" not in [thread.name for thread in threading.enumerate()], SECONDS)


@pytest.mark.slow
def test_three_hundred_thousand_lines_at_once_come_whole_and_nothing_untrue_is_said(recorder):
    name = recorder.pod("seq 300000")
    recorder.until_ended(name)
    began = time.monotonic()
    recorder.follower.finish(10.0)
    assert time.monotonic() - began < SECONDS
    assert recorder.texts() == [str(n) for n in range(1, 300_001)]


def test_parts_of_a_log_that_repeat_what_was_read_are_no_silence(recorder, monkeypatch):
    """A stream that resumes repeats a second or two of the log first, which may be hundreds of thousands of lines."""
    name = recorder.pod("seq 1000; sleep 1")
    recorder.until_told(1000)
    read = LogReader.read

    def repeating(self, stream):
        for _ in range(13):
            time.sleep(1.0)
            yield []
        yield from read(self, stream)

    monkeypatch.setattr(LogReader, "read", repeating)
    recorder.until_ended(name)
    recorder.follower.finish(12.0)
    assert recorder.texts() == [str(n) for n in range(1, 1001)]
