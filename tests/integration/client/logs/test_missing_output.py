"""Tests of logs that can't be read to their ends, on a laptop cluster.

Each line is emitted once, or one notice states which container's output may be missing.
"""

from __future__ import annotations

import threading

import pytest
import urllib3

from tests.integration.client.logs.log_recorder import SECONDS
from tests.support.polling import wait_until
from trainjob.client import LogFollower, LogNotice, ObjectEvent, log_follower
from trainjob.client.whole_log import read_log
from trainjob.errors import ClusterUnreachable

NUMBERS = [str(n) for n in range(1, 101)]


class ShortStream:
    """Response that ends in the normal way after some bytes, as if the kubelet died."""

    def __init__(self, stream, size):
        self._stream, self._left = stream, size

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def stream(self, **arguments):
        for chunk in self._stream.stream(**arguments):
            if part := chunk[: self._left]:
                yield part
            self._left -= len(part)
            if not self._left:
                return


class SilentStream(ShortStream):
    """Response whose body does not arrive in time."""

    def stream(self, **_):
        raise urllib3.exceptions.ReadTimeoutError(None, "", "Read timed out.")


@pytest.fixture
def shorten(cluster, monkeypatch):
    """Return a function that shortens the responses with these numbers.

    Requests of a last line are not counted.
    """
    open_log = cluster.open_log

    def shorten(size, responses):
        opened = []

        def open_short(*arguments, **options):
            stream = open_log(*arguments, **options)
            if options.get("tail"):
                return stream
            opened.append(stream)
            return ShortStream(stream, size) if len(opened) in responses else stream

        monkeypatch.setattr(cluster, "open_log", open_short)

    return shorten


@pytest.mark.parametrize("last", ["printf 'the last line'", "printf 'the last'; sleep 0.3; printf ' line'"])
def test_the_tail_of_a_log_that_is_far_behind_follows_one_notice(cluster, recorder, monkeypatch, last):
    name = recorder.create_pod(f"seq 20000; {last}")
    recorder.wait_until_ended(name)
    lines, go_on = [], threading.Event()

    def emit(line):
        lines.append(line)
        if len(lines) == 100:
            go_on.wait()  # as a slow log does; the reading stops until the follower skips to the tail

    follower = LogFollower(cluster, "default", emit, catch_up_seconds=0.0)
    skip = follower._skip_to_tails

    def skip_and_go_on(*arguments, **more):
        skip(*arguments, **more)
        go_on.set()

    monkeypatch.setattr(follower, "_skip_to_tails", skip_and_go_on)
    follower.observe(ObjectEvent(recorder.direct.get_pod(name, "default")))
    wait_until(lambda: len(lines) == 100)
    follower.finish(SECONDS)
    texts, [notice] = split_notices(lines)
    assert texts[-1] == "the last line"
    numbers = [int(text) for text in texts[:-1]]
    # The last 1,000 are records of the container runtime, and a line that was written in parts has several.
    [gap] = [n for n in range(1, len(numbers)) if numbers[n] != numbers[n - 1] + 1]
    assert numbers[:gap] == list(range(1, gap + 1))
    assert numbers[gap:] == list(range(numbers[gap], 20001))
    assert 19002 <= numbers[gap] < 19100
    assert "may be missing after 20" in notice
    assert "far behind after the end of its TrainJob" in notice


def test_a_log_that_is_read_in_time_has_no_notice(cluster, ended_pod):
    lines = []
    follower = LogFollower(cluster, "default", lines.append, catch_up_seconds=SECONDS)
    follower.observe(ObjectEvent(ended_pod))
    follower.finish(SECONDS)
    assert split_notices(lines) == (NUMBERS, [])


@pytest.fixture
def ended_pod(recorder):
    """Return a pod that has printed 100 lines."""
    name = recorder.create_pod("seq 100")
    recorder.wait_until_ended(name)
    return recorder.direct.get_pod(name, "default")


def follow_to_end(cluster, pod):
    lines = []
    follower = LogFollower(cluster, "default", lines.append)
    follower.observe(ObjectEvent(pod))
    follower.finish(SECONDS)
    return split_notices(lines)


def read_whole(cluster, pod):
    lines = []
    read_log(cluster, pod, "main", lines.append)
    return split_notices(lines)


def split_notices(lines):
    notices = [str(line) for line in lines if isinstance(line, LogNotice)]
    return [line.text for line in lines if not isinstance(line, LogNotice)], notices


@pytest.mark.parametrize("read", [follow_to_end, read_whole])
@pytest.mark.parametrize("size", [0, 33, 34, 1000])
def test_a_response_that_ends_early_is_continued(cluster, ended_pod, shorten, read, size):
    shorten(size, responses=[1, 2])
    assert read(cluster, ended_pod) == (NUMBERS, [])


@pytest.mark.parametrize("read", [follow_to_end, read_whole])
def test_a_log_that_always_ends_early_is_reported_once(cluster, ended_pod, shorten, read):
    shorten(1000, responses=range(1, 100))
    lines, [notice] = read(cluster, ended_pod)
    assert lines[:-1] == NUMBERS[: len(lines) - 1]
    name = ended_pod["metadata"]["name"]
    assert f"output of container main of pod {name} may be missing after 20" in notice
    assert f"kubectl logs {name} -c main -n default --since-time=20" in notice


@pytest.mark.parametrize("read", [follow_to_end, read_whole])
def test_an_empty_log_is_complete(recorder, cluster, read):
    name = recorder.create_pod("true")
    recorder.wait_until_ended(name)
    assert read(cluster, recorder.direct.get_pod(name, "default")) == ([], [])


def test_one_small_request_proves_the_end_of_a_log(cluster, ended_pod, monkeypatch):
    open_log, opened = cluster.open_log, []

    def record(*arguments, **options):
        opened.append(options.get("tail"))
        return open_log(*arguments, **options)

    monkeypatch.setattr(cluster, "open_log", record)
    assert follow_to_end(cluster, ended_pod) == (NUMBERS, [])
    assert opened == [None, 1]


@pytest.mark.parametrize("read", [follow_to_end, read_whole])
def test_a_newline_in_a_record_of_its_own_ends_a_log(recorder, cluster, read):
    name = recorder.create_pod("echo start; printf 'the end'; sleep 1; echo")
    recorder.wait_until_ended(name)
    assert read(cluster, recorder.direct.get_pod(name, "default")) == (["start", "the end"], [])


def test_a_pod_that_is_deleted_between_two_reads_is_reported_once(recorder, cluster, ended_pod, shorten, monkeypatch):
    shorten(1000, responses=[1])
    open_log, name = cluster.open_log, ended_pod["metadata"]["name"]

    def delete_then_open(*arguments, **options):
        if options.get("tail"):
            recorder.delete(name)
        return open_log(*arguments, **options)

    monkeypatch.setattr(cluster, "open_log", delete_then_open)
    lines, [notice] = follow_to_end(cluster, ended_pod)
    assert 0 < len(lines) < 100
    assert "its pod was deleted before the log was read to the end" in notice


def test_silence_after_the_end_is_reported_once(cluster, ended_pod, monkeypatch):
    def refuse(*_, **__):
        raise ClusterUnreachable("no route to the node")

    monkeypatch.setattr(cluster, "open_log", refuse)
    lines = []
    follower = LogFollower(cluster, "default", lines.append)
    follower.observe(ObjectEvent(ended_pod))
    follower.finish(0.2)
    texts, [notice] = split_notices(lines)
    assert texts == []
    assert "may be missing from its beginning: no line of its log arrived for 0.2 s (no route to the node)" in notice


def test_an_outage_after_the_end_does_not_count_as_silence(cluster, ended_pod, monkeypatch):
    """Nine failed requests take at least 3.7 s."""
    open_log, remaining = cluster.open_log, [ClusterUnreachable("connection refused")] * 9

    def refuse_at_first(*arguments, **options):
        if remaining:
            raise remaining.pop()
        return open_log(*arguments, **options)

    monkeypatch.setattr(cluster, "open_log", refuse_at_first)
    lines = []
    follower = LogFollower(cluster, "default", lines.append)
    follower.observe(ObjectEvent(ended_pod))
    follower.finish(2.5)
    assert split_notices(lines) == (NUMBERS, [])


def test_streams_that_stay_silent_are_not_an_outage_of_the_server(cluster, ended_pod, monkeypatch):
    """A server that responds is away for a shorter time than one that does not."""
    open_log, opened = cluster.open_log, []

    def open_silent(*arguments, **options):
        opened.append(open_log(*arguments, **options))
        return SilentStream(opened[-1], 0)

    monkeypatch.setattr(cluster, "open_log", open_silent)
    monkeypatch.setattr(log_follower, "_MAX_OUTAGES", 2)
    lines = []
    follower = LogFollower(cluster, "default", lines.append)
    follower.observe(ObjectEvent(ended_pod))
    follower.finish(2.0)
    texts, [notice] = split_notices(lines)
    assert (texts, len(opened) < 20) == ([], True)
    assert "no line of its log arrived for 2 s" in notice


def test_a_container_that_runs_on_is_reported_unless_it_is_about_to_be_deleted(recorder, cluster):
    name = recorder.create_pod("echo 1; sleep 600")
    recorder.wait_for_lines("1")
    lines = []
    follower = LogFollower(cluster, "default", lines.append)
    follower.observe(ObjectEvent(cluster.get_pod(name, "default")))
    follower.finish(0.2, only_ended=True)
    assert split_notices(lines)[1] == []
    recorder.follower.finish(0.2)
    [notice] = recorder.notices
    assert f"pod {name} may be missing after" in notice
    assert "the container had not ended 0.2 s after its TrainJob" in notice


def test_runs_that_ended_before_the_first_observation_are_reported(recorder, cluster, ended_pod):
    ended_pod["status"]["containerStatuses"][0]["restartCount"] = 3
    lines = []
    follower = LogFollower(cluster, "default", lines.append)
    follower.observe(ObjectEvent(ended_pod))
    wait_until(lambda: any("output of 2 earlier runs of container main" in str(line) for line in lines), SECONDS)
    follower.stop()


def test_a_log_without_repeated_lines_was_rotated(recorder, cluster, monkeypatch):
    """The kubelet serves the newest file only; here, it has the lines from number 51 on."""
    name = recorder.create_pod("seq 50; sleep 1.1; seq 51 100")
    recorder.wait_until_ended(name)
    ended_pod = recorder.direct.get_pod(name, "default")
    open_log, opened = cluster.open_log, []

    class RotatedStream(ShortStream):
        def stream(self, **arguments):
            lines = b"".join(self._stream.stream(**arguments)).splitlines(keepends=True)
            yield b"".join(lines[self._left :])

    def rotate(*arguments, **options):
        stream = open_log(*arguments, **{**options, "since": None})
        if options.get("tail"):
            return stream
        opened.append(stream)
        return ShortStream(stream, 1000) if len(opened) == 1 else RotatedStream(stream, 50)

    monkeypatch.setattr(cluster, "open_log", rotate)
    lines, [notice] = follow_to_end(cluster, ended_pod)
    assert lines[-50:] == NUMBERS[50:]
    assert "the kubelet rotated the log file" in notice


def test_a_log_for_which_no_thread_is_free_is_reported(cluster, ended_pod, monkeypatch):
    """The jobs of a process share the threads."""
    executor, lines = cluster.ended_log_executor, []
    monkeypatch.setattr(executor, "_running", executor.max_threads)
    follower = LogFollower(cluster, "default", lines.append)
    follower.observe(ObjectEvent(ended_pod))
    follower.finish(0.2)
    _, [notice] = split_notices(lines)
    assert f"{executor.max_threads} logs of ended containers were being read, which is the limit" in notice
