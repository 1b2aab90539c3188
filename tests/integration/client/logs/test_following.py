"""Tests of logs that are followed through a proxy that breaks, on a laptop cluster.

Each line is reported once.
"""

from __future__ import annotations

import random
import threading
import time

import pytest

from tests.integration.client.logs.log_recorder import SECONDS, LogRecorder, compared
from tests.support.polling import until
from trainjob.client import Backoff, LogFollower, ObjectEvent
from trainjob.client.bounded_executor import BoundedExecutor
from trainjob.client.log_lines import Transcript

NUMBERS = [str(n) for n in range(1, 1001)]
SLOWLY = "for i in $(seq 1 1000); do echo $i; [ $((i % 100)) != 0 ] || sleep 0.1; done"


@pytest.mark.slow
def test_a_stream_that_is_cut_at_each_of_its_bytes(followed, proxy, there, evidence):
    name = followed.pod("echo one; printf '\\033[1mtwo\\r'; echo 2; echo; printf 'caf\u00e9 \u2588'")
    followed.until_ended(name)
    there.ended_logs = BoundedExecutor("ended-log", 40)
    pod, written = followed.behind.get_pod(name, "default"), ["one", "2", "", "caf\u00e9 \u2588"]
    before = proxy.passed
    told = follow_ended(there, pod)
    size = proxy.passed - before
    assert told == written
    proxy.cuts = list(range(1, size))
    followers = [Ended(there, pod) for _ in range(size - 1)]
    counts = [compared(one.finish(), written) for one in followers]
    assert not proxy.cuts
    total = {key: sum(count[key] for count in counts) for key in counts[0]}
    evidence("logs", fault=f"connection cut after each byte of an answer ({size - 1} streams)", **total)
    assert (total["lost"], total["repeated"]) == (0, 0)


class Ended:
    """Reads the log of a pod that has ended."""

    def __init__(self, there, pod):
        self.lines = []
        self.follower = LogFollower(there, "default", self.lines.append)
        self.follower.observe(ObjectEvent(pod))

    def finish(self):
        self.follower.finish(SECONDS)
        return [line.text for line in self.lines if not line.frame]


def follow_ended(there, pod):
    return Ended(there, pod).finish()


def test_a_live_log_whose_stream_is_cut_again_and_again(followed, proxy, evidence):
    followed.emit = lambda line: proxy.break_all() if line.text.endswith("50") else None
    name = followed.pod(SLOWLY)
    followed.until_ended(name)
    followed.follower.finish(SECONDS)
    counts = compared(followed.texts(), NUMBERS)
    evidence("logs", fault=f"connection of a running container's log reset, {proxy.streams} streams", **counts)
    assert followed.texts() == NUMBERS
    assert proxy.streams > 2


def test_a_token_that_is_rotated_while_a_log_is_followed(followed, proxy, tmp_path, evidence):
    first, second = tmp_path / "first", tmp_path / "second"
    script = [f"until [ -e {gate} ]; do sleep 0.05; done" for gate in (first, second)]
    name = followed.pod(f"seq 100; {script[0]}; seq 101 300; {script[1]}; seq 301 1000")
    followed.until_told("100")
    proxy.rotate("second")
    proxy.renew()
    proxy.break_all()
    first.touch()
    followed.until_told("300")
    proxy.rotate("third")  # and the new one comes late
    streams, refused = proxy.streams, proxy.refused
    proxy.break_all()
    until(lambda: proxy.refused > refused, SECONDS)
    proxy.renew()
    second.touch()
    followed.until_told("1000")
    assert proxy.streams > streams
    followed.until_ended(name)
    followed.follower.finish(SECONDS)
    evidence("logs", fault="token rotated in mid-stream, twice", **compared(followed.texts(), NUMBERS))
    assert followed.texts() == NUMBERS


def test_who_pauses_after_trouble_comes_back_when_its_container_has_ended(followed, proxy, tmp_path, monkeypatch):
    pauses = []
    monkeypatch.setattr(Backoff, "next", lambda *_: pauses.append(3600.0) or 3600.0)
    name = followed.pod(f"echo 1; until [ -e {tmp_path}/go ]; do sleep 0.1; done; echo 2")
    followed.until_told("1")
    proxy.break_all()
    until(lambda: pauses, SECONDS)
    (tmp_path / "go").touch()
    followed.until_ended(name)
    followed.follower.finish(20.0)
    assert followed.texts() == ["1", "2"]


def test_a_slow_reader_holds_the_server_back_and_nobody_else(
    followed, proxy, there, cluster, unique, tmp_path, evidence
):
    big, others = [f"{n:01000d}" for n in range(1, 30_001)], [str(n) for n in range(1, 11)]
    may_go, stuck = threading.Event(), threading.Event()

    def block(line):
        stuck.set()
        assert may_go.wait(SECONDS)

    followed.emit = block
    with LogRecorder(there, cluster, unique + "x") as other:
        slow = followed.pod("seq -f %01000.0f 30000")
        assert stuck.wait(SECONDS)
        followed.until_ended(slow)  # and the watch continues
        quick = other.pod("seq 10")
        other.until_told("10")
        other.until_ended(quick)
        other.follower.finish(SECONDS)
        assert other.texts() == others
        passed = proxy.passed
        assert passed < 20 << 20  # what sockets hold; the log has 30 MB
        may_go.set()
        followed.follower.finish(SECONDS)
    counts = compared(followed.texts() + other.texts(), big + others)
    evidence("logs", fault=f"reader that stood still, at {passed >> 20} MiB of 30", **counts)
    assert followed.texts() == big


def test_binary_garbage_and_lines_of_ten_megabytes(followed, proxy, tmp_path, evidence):
    dice = random.Random(5)  # noqa: S311 - the same each time
    garbage = dice.randbytes(300_000) + b"\n"
    long = b"abcdefghijklmno\xc3\xa9 " * 600_000 + b"\n"
    (tmp_path / "log").write_bytes(garbage + long + b"end\n")
    proxy.cuts = [100_000, 2_000_000, 7_000_000]
    name = followed.pod(f"cat {tmp_path}/log")
    followed.until_ended(name)
    followed.follower.finish(SECONDS)
    written = []
    for line in (garbage + long + b"end\n").split(b"\n")[:-1]:
        shown = [part for part in line.split(b"\r") if part]
        written.append((shown[-1] if shown else b"").decode(errors="replace"))
    assert not proxy.cuts
    fault = "300 kB of random bytes and a line of 10 MB, cut 3 times"
    evidence("logs", fault=fault, **compared(followed.texts(), written))
    assert followed.texts() == written


@pytest.mark.slow
def test_a_container_that_is_restarted_at_once_and_then_with_longer_and_longer_pauses(followed, tmp_path, evidence):
    """The last pause is longer than a stream's end is taken for the container's."""
    script = f"echo x >> {tmp_path}/runs; n=$(wc -l < {tmp_path}/runs); seq -f run-$n-%g 50; sleep 0.3; exit $((n < 5))"
    name = followed.pod(script, restart="OnFailure")
    followed.until_ended(name)
    followed.follower.finish(SECONDS)
    written = [f"run-{run}-{n}" for run in range(1, 6) for n in range(1, 51)]
    evidence("logs", fault="container restarted 4 times, with a back-off", **compared(followed.texts(), written))
    assert sorted(followed.texts()) == sorted(written)


def test_a_restart_between_a_pods_news_and_the_opening_of_its_log(followed, there, tmp_path, monkeypatch, evidence):
    """What is opened is the next run's log then."""
    open_log, runs, held = there.open_log, tmp_path / "runs", []

    def open_late(*arguments, **more):
        if not held:
            held.append(until(lambda: runs.exists() and runs.read_text() == "xx", SECONDS))
        return open_log(*arguments, **more)

    monkeypatch.setattr(there, "open_log", open_late)
    go = tmp_path / "go"
    work = f"seq -f run-$n-%g 50; [ $n = 1 ] || while [ ! -e {go} ]; do sleep 0.05; done; exit $((n < 2))"
    name = followed.pod(f"printf x >> {runs}; n=$(wc -c < {runs}); {work}", restart="OnFailure")
    until(lambda: followed.behind.get_pod(name, "default")["status"].get("containerStatuses"), SECONDS)
    written = [f"run-{run}-{n}" for run in (1, 2) for n in range(1, 51)]
    until(lambda: len(followed.texts()) >= len(written), SECONDS)
    go.touch()
    followed.until_ended(name)
    followed.follower.finish(SECONDS)
    evidence("logs", fault="restart before its log was opened", **compared(followed.texts(), written))
    assert sorted(followed.texts()) == sorted(written)


class Unwatched(LogRecorder):
    """Its follower hears of a pod's state when it is told, as one whose watch is late."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.follower.stop()

    def observe(self, name):
        self.follower.observe(ObjectEvent(self.behind.get_pod(name, "default")))

    def restarts(self, name, state):
        """Return how often a pod's container was restarted; None if it is not in this state."""
        [status] = self.behind.get_pod(name, "default")["status"].get("containerStatuses", [{}])
        return status["restartCount"] if state in status.get("state", {}) else None


def test_a_stream_that_is_opened_again_is_the_next_runs(there, cluster, unique, monkeypatch, tmp_path, evidence):
    """The first run's stream ends before its pod's news come."""
    open_log, opened = there.open_log, []
    work = f"seq -f run-$n-%g 50; touch {tmp_path}/told-$n; until [ -e {tmp_path}/end-$n ]; do sleep 0.05; done"
    script = f"printf x >> {tmp_path}/runs; n=$(wc -c < {tmp_path}/runs); {work}; exit $((n < 2))"
    with Unwatched(there, cluster, unique) as late:
        name = late.pod(script, restart="OnFailure")

        def open_late(*arguments, **more):
            opened.append(more)
            if len(opened) != 2:
                return open_log(*arguments, **more)
            until(lambda: (tmp_path / "told-2").exists() and late.restarts(name, "running") == 1, SECONDS)
            stream = open_log(*arguments, **more)
            late.observe(name)
            return stream

        monkeypatch.setattr(there, "open_log", open_late)
        until(lambda: late.restarts(name, "running") == 0, SECONDS)
        late.observe(name)
        late.until_told(50)
        (tmp_path / "end-1").touch()
        late.until_told(100)
        (tmp_path / "end-2").touch()
        late.until_phase(name, ("Succeeded",))
        late.observe(name)
        late.follower.finish(SECONDS)
    written = [f"run-{run}-{n}" for run in (1, 2) for n in range(1, 51)]
    evidence("logs", fault="the next run's log opened for an ended one", **compared(late.texts(), written))
    assert len(opened) > 2
    assert sorted(late.texts()) == sorted(written)


@pytest.mark.slow
def test_a_container_that_waits_for_its_next_start_is_seen_late(there, cluster, unique, tmp_path, evidence):
    """Of the runs before its last one nobody has the log: what is there as the previous one's is the last's."""
    script = f"printf x >> {tmp_path}/runs; n=$(wc -c < {tmp_path}/runs); seq -f run-$n-%g 50; exit 1"
    with Unwatched(there, cluster, unique) as late:
        name = late.pod(script, restart="OnFailure")
        until(lambda: (late.restarts(name, "waiting") or 0) >= 4, SECONDS)  # pauses are long by now
        late.observe(name)
        run = late.restarts(name, "waiting") + 1
        late.until_told(50)
        late.follower.finish(SECONDS)
    written = [f"run-{run}-{n}" for n in range(1, 51)]
    evidence("logs", fault="restarted container seen first while it waits", **compared(late.texts(), written))
    assert late.texts() == written


def test_pods_that_come_late_are_replaced_and_have_several_containers(followed, evidence):
    first = followed.pod("seq 20; sleep 600")
    followed.until_told("20")
    followed.delete(first)
    again = followed.pod("seq 21 40", suffix="-b")  # as a Job names it
    followed.until_told("40")
    late = followed.pod("seq 41 60", rank=1, containers=("main", "sidecar"))
    followed.until_ended(again, late)
    followed.follower.finish(SECONDS)
    told = {source: followed.texts(source) for source in followed.lines}
    numbers = [str(n) for n in range(1, 61)]
    assert told == {"node-0": numbers[:40], "node-1/main": numbers[40:], "node-1/sidecar": numbers[40:]}
    lines = [line for lines in told.values() for line in lines]
    evidence("logs", fault="pod replaced, pod late, two containers", **compared(lines, numbers[:40] + 2 * numbers[40:]))


def test_more_logs_than_may_be_open(followed, proxy, there, tmp_path, evidence):
    there.live_logs, there.ended_logs = BoundedExecutor("log", 2), BoundedExecutor("ended-log", 2)
    go = tmp_path / "go"
    script = f"seq 100; while [ ! -e {go} ]; do sleep 0.05; done; seq 101 200"
    names = [followed.pod(script, rank=rank) for rank in range(8)]
    for name in names:
        followed.until_phase(name)
    until(lambda: sum(len(lines) for lines in followed.lines.values()) >= 201, SECONDS)
    assert proxy.open <= 2
    go.touch()
    followed.until_ended(*names)
    followed.follower.finish(SECONDS)
    said = [line for source in followed.lines for line in followed.texts(source) if not line.isdigit()]
    assert len(said) == 1
    assert "2 logs are being followed already" in said[0]
    told = [[line for line in followed.texts(f"node-{rank}") if line.isdigit()] for rank in range(8)]
    numbers = [str(n) for n in range(1, 201)]
    counts = compared([line for lines in told for line in lines], numbers * 8)
    evidence("logs", fault="8 logs, 2 may be open", **counts)
    assert told == [numbers] * 8


def test_logs_that_may_not_be_read_are_told_and_not_waited_for(followed, trainjob_faults):
    trainjob_faults.answer(403, times=1000, verb="get", resource="pods/log")
    name = followed.pod("echo one")
    followed.until_ended(name)
    followed.follower.finish(SECONDS)
    [line] = followed.texts()
    assert "this log can't be read: no permission" in line


# -- stopping ---------------------------------------------------------------------------------------------------------


class Held:
    """A stream that is held at its end."""

    def __init__(self, stream, ended, may_go):
        self._stream, self._ended, self._may_go = stream, ended, may_go

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def stream(self, **arguments):
        yield from self._stream.stream(**arguments)
        self._ended.set()
        assert self._may_go.wait(SECONDS)


def test_stopping_when_a_stream_has_just_ended(followed, there, monkeypatch):
    ended, may_go = threading.Event(), threading.Event()
    open_log = there.open_log
    monkeypatch.setattr(there, "open_log", lambda *a, **k: Held(open_log(*a, **k), ended, may_go))
    followed.until_ended(followed.pod("echo one"))
    assert ended.wait(SECONDS)
    followed.follower.stop()
    may_go.set()


def test_stopping_when_a_stream_is_just_being_opened(followed, proxy, there, monkeypatch):
    open_log = there.open_log

    def open_and_stop(*arguments, **more):
        stream = open_log(*arguments, **more)
        followed.follower.stop()
        return stream

    monkeypatch.setattr(there, "open_log", open_and_stop)
    there.live_logs = BoundedExecutor("stopped", 1)
    followed.pod("sleep 60")
    until(lambda: proxy.streams, SECONDS)
    until(lambda: "stopped" not in [thread.name for thread in threading.enumerate()], SECONDS)


@pytest.mark.slow
def test_three_hundred_thousand_lines_at_once_come_whole_and_nothing_untrue_is_said(followed):
    name = followed.pod("seq 300000")
    followed.until_ended(name)
    began = time.monotonic()
    followed.follower.finish(10.0)
    assert time.monotonic() - began < SECONDS
    assert followed.texts() == [str(n) for n in range(1, 300_001)]


def test_parts_of_a_log_that_repeat_what_was_read_are_no_silence(followed, monkeypatch):
    """A stream that resumes repeats a second or two of the log first, which may be hundreds of thousands of lines."""
    name = followed.pod("seq 1000; sleep 1")
    followed.until_told(1000)
    read = Transcript.read

    def repeating(self, stream):
        for _ in range(13):
            time.sleep(1.0)
            yield []
        yield from read(self, stream)

    monkeypatch.setattr(Transcript, "read", repeating)
    followed.until_ended(name)
    followed.follower.finish(12.0)
    assert followed.texts() == [str(n) for n in range(1, 1001)]
