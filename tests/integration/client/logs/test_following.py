"""Tests of logs that are followed through a proxy that breaks, on a laptop cluster.

Each line is emitted once.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace

import pytest

from tests.integration.client.logs.log_recorder import SECONDS, LogRecorder, compare_lines
from tests.support.polling import wait_until
from trainjob.client import Backoff, LogFollower, ObjectEvent
from trainjob.client.log_reader import LogReader
from trainjob.status.pods import find_failures
from trainjob.threads import BoundedExecutor

NUMBERS = [str(n) for n in range(1, 1001)]
SLOW_SCRIPT = "for i in $(seq 1 1000); do echo $i; [ $((i % 100)) != 0 ] || sleep 0.1; done"


@pytest.mark.slow
def test_no_line_is_lost_if_a_stream_is_cut_at_each_of_its_bytes(recorder, proxy, proxied_cluster, evidence):
    name = recorder.create_pod("echo one; printf '\\033[1mtwo\\r'; echo 2; echo; printf 'caf\u00e9 \u2588'")
    recorder.wait_until_ended(name)
    proxied_cluster.ended_log_executor = BoundedExecutor("ended-log", 40)
    pod, written = recorder.direct.get_pod(name, "default"), ["one", "2", "", "caf\u00e9 \u2588"]
    before = proxy.forwarded_bytes
    lines = read_ended_pod(proxied_cluster, pod)
    size = proxy.forwarded_bytes - before
    assert lines == written
    proxy.cut_after_bytes = list(range(1, size))
    readers = [EndedPodReader(proxied_cluster, pod) for _ in range(size - 1)]
    counts = [compare_lines(reader.read_to_end(), written) for reader in readers]
    assert not proxy.cut_after_bytes
    total = {key: sum(count[key] for count in counts) for key in counts[0]}
    evidence("logs", fault=f"connection cut after each byte of a response ({size - 1} streams)", **total)
    assert (total["lost"], total["repeated"]) == (0, 0)


class EndedPodReader:
    """Follower that reads the log of a pod that has ended."""

    def __init__(self, cluster, pod):
        self.lines = []
        self.follower = LogFollower(cluster, "default", self.lines.append)
        self.follower.observe(ObjectEvent(pod))

    def read_to_end(self):
        self.follower.finish(SECONDS)
        return [line.text for line in self.lines if not line.frame]


def read_ended_pod(cluster, pod):
    return EndedPodReader(cluster, pod).read_to_end()


def test_no_line_is_lost_if_a_live_stream_is_reset_repeatedly(recorder, proxy, evidence):
    recorder.on_line = lambda line: proxy.reset_streams() if line.text.endswith("50") else None
    name = recorder.create_pod(SLOW_SCRIPT)
    recorder.wait_until_ended(name)
    recorder.follower.finish(SECONDS)
    counts = compare_lines(recorder.whole_lines(), NUMBERS)
    evidence("logs", fault=f"connection of a running container's log reset, {proxy.log_requests} streams", **counts)
    assert recorder.whole_lines() == NUMBERS
    assert proxy.log_requests > 2


def test_no_line_is_lost_if_the_token_is_rotated_during_a_stream(recorder, proxy, tmp_path, evidence):
    first, second = tmp_path / "first", tmp_path / "second"
    script = [f"until [ -e {gate} ]; do sleep 0.05; done" for gate in (first, second)]
    name = recorder.create_pod(f"seq 100; {script[0]}; seq 101 300; {script[1]}; seq 301 1000")
    recorder.wait_for_lines("100")
    proxy.rotate_token("second")
    proxy.write_token()
    proxy.reset_streams()
    first.touch()
    recorder.wait_for_lines("300")
    proxy.rotate_token("third")  # the new token is written to its file later
    log_requests, refused = proxy.log_requests, proxy.refused_requests
    proxy.reset_streams()
    wait_until(lambda: proxy.refused_requests > refused, SECONDS)
    proxy.write_token()
    second.touch()
    recorder.wait_for_lines("1000")
    assert proxy.log_requests > log_requests
    recorder.wait_until_ended(name)
    recorder.follower.finish(SECONDS)
    evidence("logs", fault="token rotated during a stream, twice", **compare_lines(recorder.whole_lines(), NUMBERS))
    assert recorder.whole_lines() == NUMBERS


def test_a_pause_after_an_error_ends_when_the_container_ends(recorder, proxy, tmp_path, monkeypatch):
    pauses = []

    def pause_for_long(*_):
        pauses.append(3600.0)
        return 3600.0

    monkeypatch.setattr(Backoff, "next", pause_for_long)
    name = recorder.create_pod(f"echo 1; until [ -e {tmp_path}/go ]; do sleep 0.1; done; echo 2")
    recorder.wait_for_lines("1")
    proxy.reset_streams()
    wait_until(lambda: pauses, SECONDS)
    (tmp_path / "go").touch()
    recorder.wait_until_ended(name)
    recorder.follower.finish(20.0)
    assert recorder.whole_lines() == ["1", "2"]


def test_a_slow_reader_slows_down_only_its_own_stream(
    recorder, proxy, proxied_cluster, cluster, unique, tmp_path, evidence
):
    big, others = [f"{n:01000d}" for n in range(1, 30_001)], [str(n) for n in range(1, 11)]
    may_go, stuck = threading.Event(), threading.Event()

    def block(line):
        stuck.set()
        assert may_go.wait(SECONDS)

    recorder.on_line = block
    with LogRecorder(proxied_cluster, cluster, unique + "x") as other:
        slow = recorder.create_pod("seq -f %01000.0f 30000")
        assert stuck.wait(SECONDS)
        recorder.wait_until_ended(slow)  # the watch continues meanwhile
        quick = other.create_pod("seq 10")
        other.wait_for_lines("10")
        other.wait_until_ended(quick)
        other.follower.finish(SECONDS)
        assert other.whole_lines() == others
        forwarded = proxy.forwarded_bytes
        assert forwarded < 20 << 20  # the size of the sockets' buffers; the log has 30 MB
        may_go.set()
        recorder.follower.finish(SECONDS)
    counts = compare_lines(recorder.whole_lines() + other.whole_lines(), big + others)
    evidence("logs", fault=f"reader that stopped reading, at {forwarded >> 20} MiB of 30", **counts)
    assert recorder.whole_lines() == big


def test_binary_data_and_lines_of_ten_megabytes_are_read_completely(recorder, proxy, tmp_path, evidence):
    generator = random.Random(5)  # noqa: S311 - the same bytes in each run
    garbage = generator.randbytes(300_000) + b"\n"
    long = b"abcdefghijklmno\xc3\xa9 " * 600_000 + b"\n"
    (tmp_path / "log").write_bytes(garbage + long + b"end\n")
    proxy.cut_after_bytes = [100_000, 2_000_000, 7_000_000]
    name = recorder.create_pod(f"cat {tmp_path}/log")
    recorder.wait_until_ended(name)
    recorder.follower.finish(SECONDS)
    written = []
    for line in (garbage + long + b"end\n").split(b"\n")[:-1]:
        shown = [part for part in line.split(b"\r") if part]
        written.append((shown[-1] if shown else b"").decode(errors="replace"))
    assert not proxy.cut_after_bytes
    fault = "300 kB of random bytes and a line of 10 MB, cut 3 times"
    evidence("logs", fault=fault, **compare_lines(recorder.whole_lines(), written))
    assert recorder.whole_lines() == written


@pytest.mark.slow
def test_no_line_is_lost_if_a_container_restarts_with_growing_pauses(recorder, tmp_path, evidence):
    """The last pause is longer than the follower waits for the container's end after its stream's end."""
    script = f"echo x >> {tmp_path}/runs; n=$(wc -l < {tmp_path}/runs); seq -f run-$n-%g 50; sleep 0.3; exit $((n < 5))"
    name = recorder.create_pod(script, restart="OnFailure")
    recorder.wait_until_ended(name)
    recorder.follower.finish(SECONDS)
    written = [f"run-{run}-{n}" for run in range(1, 6) for n in range(1, 51)]
    evidence(
        "logs", fault="container restarted 4 times, with a back-off", **compare_lines(recorder.whole_lines(), written)
    )
    assert sorted(recorder.whole_lines()) == sorted(written)


def test_a_container_may_restart_between_its_event_and_the_opening_of_its_log(
    recorder, proxied_cluster, tmp_path, monkeypatch, evidence
):
    """The follower then opens the log of the next run."""
    open_log, runs, delayed = proxied_cluster.open_log, tmp_path / "runs", []

    def open_late(*arguments, **more):
        if not delayed:
            delayed.append(wait_until(lambda: runs.exists() and runs.read_text() == "xx", SECONDS))
        return open_log(*arguments, **more)

    monkeypatch.setattr(proxied_cluster, "open_log", open_late)
    go = tmp_path / "go"
    work = f"seq -f run-$n-%g 50; [ $n = 1 ] || while [ ! -e {go} ]; do sleep 0.05; done; exit $((n < 2))"
    name = recorder.create_pod(f"printf x >> {runs}; n=$(wc -c < {runs}); {work}", restart="OnFailure")
    wait_until(lambda: recorder.direct.get_pod(name, "default")["status"].get("containerStatuses"), SECONDS)
    written = [f"run-{run}-{n}" for run in (1, 2) for n in range(1, 51)]
    wait_until(lambda: len(recorder.whole_lines()) >= len(written), SECONDS)
    go.touch()
    recorder.wait_until_ended(name)
    recorder.follower.finish(SECONDS)
    evidence("logs", fault="restart before its log was opened", **compare_lines(recorder.whole_lines(), written))
    assert sorted(recorder.whole_lines()) == sorted(written)


def test_the_received_tail_of_a_failure_has_the_lines_of_the_failed_run_only(recorder, tmp_path):
    """A restarted container may print lines before its pod is deleted, which are not those of its failure."""
    work = f"seq -f run-$n-%g 30; until [ -e {tmp_path}/end-$n ]; do sleep 0.05; done; exit 3"
    name = recorder.create_pod(f"echo x >> {tmp_path}/runs; n=$(wc -l < {tmp_path}/runs); {work}", restart="OnFailure")
    for run in (1, 2):
        recorder.wait_for_lines(f"run-{run}-30")
        (tmp_path / f"end-{run}").touch()
    recorder.wait_for_lines("run-3-30")
    pod = recorder.direct.get_pod(name, "default")
    [failure] = find_failures([pod])
    tails = [recorder.follower.received_tail(replace(failure, count=count)) for count in (1, 2, 3)]
    assert failure.count == 2
    assert tails == [tuple(f"run-{run}-{n}" for n in range(11, 31)) for run in (1, 2, 3)]
    assert not recorder.follower.received_tail(replace(failure, container="other"))


class UnwatchedLogRecorder(LogRecorder):
    """Recorder without a watch; its follower gets a pod's state only by `observe`."""

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


def test_a_stream_that_is_opened_again_may_be_the_log_of_the_next_run(
    proxied_cluster, cluster, unique, monkeypatch, tmp_path, evidence
):
    """The stream of the first run ends before the event of its pod arrives."""
    open_log, opened = proxied_cluster.open_log, []
    work = f"seq -f run-$n-%g 50; touch {tmp_path}/written-$n; until [ -e {tmp_path}/end-$n ]; do sleep 0.05; done"
    script = f"printf x >> {tmp_path}/runs; n=$(wc -c < {tmp_path}/runs); {work}; exit $((n < 2))"
    with UnwatchedLogRecorder(proxied_cluster, cluster, unique) as late:
        name = late.create_pod(script, restart="OnFailure")

        def open_late(*arguments, **more):
            opened.append(more)
            if len(opened) != 2:
                return open_log(*arguments, **more)
            wait_until(lambda: (tmp_path / "written-2").exists() and late.count_restarts(name, "running") == 1, SECONDS)
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
def test_a_container_is_first_observed_while_it_waits_for_a_restart(
    proxied_cluster, cluster, unique, tmp_path, evidence
):
    """Only the log of the last run still exists; the API serves it as the log of the previous run."""
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


def test_pods_may_appear_late_be_replaced_and_have_several_containers(recorder, evidence):
    first = recorder.create_pod("seq 20; sleep 600")
    recorder.wait_for_lines("20")
    recorder.delete(first)
    again = recorder.create_pod("seq 21 40", suffix="-b")  # a Job also creates a pod of another name
    recorder.wait_for_lines("40")
    late = recorder.create_pod("seq 41 60", rank=1, containers=("main", "sidecar"))
    recorder.wait_until_ended(again, late)
    recorder.follower.finish(SECONDS)
    by_source = {source: recorder.whole_lines(source) for source in recorder.lines}
    numbers = [str(n) for n in range(1, 61)]
    assert by_source == {"node-0": numbers[:40], "node-1/main": numbers[40:], "node-1/sidecar": numbers[40:]}
    assert all(f"pod {first} may be missing after" in notice for notice in recorder.notices)  # deleted without grace
    containers = {line.container for line in recorder.lines["node-1/sidecar"]}
    assert containers == {"sidecar"}
    lines = [line for lines in by_source.values() for line in lines]
    evidence(
        "logs", fault="pod replaced, pod late, two containers", **compare_lines(lines, numbers[:40] + 2 * numbers[40:])
    )


def test_logs_beyond_the_limit_are_read_later_with_a_notice(recorder, proxy, proxied_cluster, tmp_path, evidence):
    proxied_cluster.live_log_executor, proxied_cluster.ended_log_executor = (
        BoundedExecutor("log", 2),
        BoundedExecutor("ended-log", 2),
    )
    go = tmp_path / "go"
    script = f"seq 100; while [ ! -e {go} ]; do sleep 0.05; done; seq 101 200"
    names = [recorder.create_pod(script, rank=rank) for rank in range(8)]
    for name in names:
        recorder.wait_for_phase(name)
    wait_until(lambda: recorder.notices and sum(len(lines) for lines in recorder.lines.values()) >= 200, SECONDS)
    assert proxy.open_streams <= 2
    go.touch()
    recorder.wait_until_ended(*names)
    recorder.follower.finish(SECONDS)
    [notice] = recorder.notices
    assert "2 logs are already being followed" in notice
    by_rank = [recorder.whole_lines(f"node-{rank}") for rank in range(8)]
    numbers = [str(n) for n in range(1, 201)]
    counts = compare_lines([line for lines in by_rank for line in lines], numbers * 8)
    evidence("logs", fault="8 logs, 2 streams at most", **counts)
    assert by_rank == [numbers] * 8


def test_a_missing_permission_to_read_logs_is_reported_without_a_wait(recorder, trainjob_faults):
    trainjob_faults.answer(403, times=1000, verb="get", resource="pods/log")
    name = recorder.create_pod("echo one")
    recorder.wait_until_ended(name)
    recorder.follower.finish(SECONDS)
    [notice] = recorder.notices
    assert "may be missing from its beginning: its log can't be read: no permission" in notice


# -- stopping ---------------------------------------------------------------------------------------------------------


class HeldStream:
    """Stream that blocks at its end until the test releases it."""

    def __init__(self, stream, end_reached, released):
        self._stream, self._end_reached, self._released = stream, end_reached, released

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def stream(self, **arguments):
        yield from self._stream.stream(**arguments)
        self._end_reached.set()
        assert self._released.wait(SECONDS)


def test_the_follower_stops_when_a_stream_has_just_ended(recorder, proxied_cluster, monkeypatch):
    end_reached, released = threading.Event(), threading.Event()
    open_log = proxied_cluster.open_log
    monkeypatch.setattr(
        proxied_cluster, "open_log", lambda *a, **k: HeldStream(open_log(*a, **k), end_reached, released)
    )
    recorder.wait_until_ended(recorder.create_pod("echo one"))
    assert end_reached.wait(SECONDS)
    recorder.follower.stop()
    released.set()


def test_the_follower_stops_while_a_stream_is_being_opened(recorder, proxy, proxied_cluster, monkeypatch):
    open_log = proxied_cluster.open_log

    def open_and_stop(*arguments, **more):
        stream = open_log(*arguments, **more)
        recorder.follower.stop()
        return stream

    monkeypatch.setattr(proxied_cluster, "open_log", open_and_stop)
    proxied_cluster.live_log_executor = BoundedExecutor("stopped", 1)
    recorder.create_pod("sleep 60")
    wait_until(lambda: proxy.log_requests, SECONDS)
    wait_until(lambda: "stopped" not in [thread.name for thread in threading.enumerate()], SECONDS)


@pytest.mark.slow
def test_three_hundred_thousand_lines_at_once_are_read_without_a_notice(recorder):
    name = recorder.create_pod("seq 300000")
    recorder.wait_until_ended(name)
    began = time.monotonic()
    recorder.follower.finish(10.0)
    assert time.monotonic() - began < SECONDS
    assert recorder.whole_lines() == [str(n) for n in range(1, 300_001)]
    assert not recorder.notices


def test_repeated_parts_of_a_log_do_not_count_as_silence(recorder, monkeypatch):
    """A resumed stream repeats a second or two of the log first, which may be hundreds of thousands of lines."""
    name = recorder.create_pod("seq 1000; sleep 1")
    recorder.wait_for_lines(1000)
    read = LogReader.read

    def repeating(self, stream):
        for _ in range(13):
            time.sleep(1.0)
            yield []
        yield from read(self, stream)

    monkeypatch.setattr(LogReader, "read", repeating)
    recorder.wait_until_ended(name)
    recorder.follower.finish(12.0)
    assert recorder.whole_lines() == [str(n) for n in range(1, 1001)]
