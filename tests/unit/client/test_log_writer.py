"""Tests of the log writer: one thread writes the lines of many jobs to logs that are slow, stuck or broken."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tests.support.polling import wait_until
from tests.support.refused_threads import RefusedStarts
from trainjob.client import LogLine, LogWriter, RateLimit, log_writer
from trainjob.client.log_lines import LoggedContainer
from trainjob.client.log_queue import QueueLimits

SECONDS = 60


class BlockingLog:
    """Log that writes when the test allows it, and records each line with its thread."""

    def __init__(self):
        self.lines, self.threads, self.may_write = [], set(), threading.Semaphore(0)
        self.called = threading.Event()

    def __call__(self, text):
        self.called.set()
        assert self.may_write.acquire(timeout=SECONDS)
        self.threads.add(threading.current_thread().name)
        self.lines.append(text)

    def release(self):
        self.may_write.release(1_000_000)


def put_lines(channel, count, source="node-0", first=0):
    def work():
        for n in range(first, count):
            channel.put(LogLine(source, str(n), log=LoggedContainer(source, "ns", source, "u", "node")))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_reader_waits_for_a_slow_log_and_no_line_is_lost():
    log = BlockingLog()
    with LogWriter(queue_limits=QueueLimits(lines=10, max_wait=SECONDS)).open(log) as channel:
        reader = put_lines(channel, 1000)
        wait_until(lambda: len(channel._queue) == 10, SECONDS)
        assert reader.is_alive()
        log.release()
        reader.join(SECONDS)
    assert log.lines == [f"[node-0] {n}" for n in range(1000)]
    assert log.threads == {"log-writer"}


def test_too_many_lines_are_skipped_after_a_while_with_a_notice():
    log, gaps = BlockingLog(), []
    writer = LogWriter(queue_limits=QueueLimits(lines=10, max_wait=0.1, kept_lines=5))
    with writer.open(log, on_skipped=gaps.append) as channel:
        put_lines(channel, 1).join(SECONDS)
        assert log.called.wait(SECONDS)  # the log is stuck
        put_lines(channel, 50_000, first=1).join(SECONDS)
        channel.report("TrainJob ns/job: Complete")  # does not block either
        assert len(channel._queue) < 30
        log.release()
    notices = [n for n, line in enumerate(log.lines) if "skipped" in line]
    assert len(notices) == 1
    written = [int(line.split()[1]) for n, line in enumerate(log.lines) if "[node-0]" in line and n not in notices]
    assert f"{50_000 - len(written):,} lines" in log.lines[notices[0]]
    assert [(gap.source, gap.lines) for gap in gaps] == [("node-0", 50_000 - len(written))]
    assert written[-5:] == [*range(49_995, 50_000)]
    assert written[: notices[0]] == [*range(notices[0])]
    assert "TrainJob ns/job: Complete" in log.lines


def test_after_the_jobs_end_no_reader_waits_and_the_newest_lines_are_written(monkeypatch):
    monkeypatch.setattr(log_writer, "_DRAIN_SECONDS", 0.2)
    log = BlockingLog()
    channel = LogWriter(queue_limits=QueueLimits(lines=1000, max_wait=3600.0, kept_lines=5)).open(log)
    reader = put_lines(channel, 5000)
    wait_until(lambda: len(channel._queue) == 1000, SECONDS)
    channel.stop_blocking()
    reader.join(SECONDS)
    ending = threading.Thread(target=channel.finish, daemon=True)
    ending.start()
    wait_until(lambda: len(channel._queue) < 20, SECONDS)
    log.release()
    ending.join(SECONDS)
    assert log.lines[-5:] == [f"[node-0] {n}" for n in range(4995, 5000)]
    assert sum("skipped" in line for line in log.lines) == 1


def test_a_stuck_log_does_not_block_the_end_of_a_wait(monkeypatch):
    monkeypatch.setattr(log_writer, "_DRAIN_SECONDS", 0.1)
    monkeypatch.setattr(log_writer, "_NEWEST_SECONDS", 0.1)
    log = BlockingLog()

    async def end():
        channel = LogWriter(queue_limits=QueueLimits(lines=10, max_wait=0.1)).open(log)
        await asyncio.to_thread(put_lines(channel, 100).join, SECONDS)
        await channel.finish_async()

    asyncio.run(end())
    assert log.lines == []
    log.release()


def test_a_log_that_raises_ends_neither_the_wait_nor_another_log():
    def broken(text):
        raise OSError("no space left")

    log, writer = BlockingLog(), LogWriter()
    log.release()
    with writer.open(broken) as first, writer.open(log) as second:
        put_lines(first, 10).join(SECONDS)
        put_lines(second, 10).join(SECONDS)
    assert len(log.lines) == 10


def test_the_jobs_of_a_writer_take_turns_at_a_common_rate(monkeypatch):
    """Nineteen jobs print a lot; the twentieth prints little, and does not wait for them."""
    slept = []
    monkeypatch.setattr(log_writer, "time", FakeClock(slept))
    monkeypatch.setattr(log_writer, "_DRAIN_SECONDS", SECONDS)
    log, writer = BlockingLog(), LogWriter(RateLimit(bytes_per_second=1000, burst=100, line_overhead=90))
    channels = [writer.open(log) for _ in range(20)]
    for n, channel in enumerate(channels):
        for line in range(3 if n == 19 else 200):
            channel.put(LogLine(f"job-{n}", str(line)))
    log.release()
    for channel in channels:
        channel.finish()
    places = [place for place, line in enumerate(log.lines) if line.startswith("[job-19]")]
    assert len(log.lines) == 19 * 200 + 3
    assert max(places) < 10 + len(places)  # a few were taken before its lines were there
    cost = sum(len(line) + 90 for line in log.lines)
    assert sum(slept) == pytest.approx((cost - 100) / 1000, rel=0.05)


def test_at_a_high_rate_a_pause_is_followed_by_many_lines(monkeypatch):
    """A pause before each line takes more CPU time than its line."""
    slept = []
    monkeypatch.setattr(log_writer, "time", FakeClock(slept))
    monkeypatch.setattr(log_writer, "_DRAIN_SECONDS", SECONDS)
    log, writer = BlockingLog(), LogWriter(RateLimit(bytes_per_second=100_000, burst=32_000, line_overhead=90))
    with writer.open(log) as channel:
        put_lines(channel, 1000).join(SECONDS)
        log.release()
    cost = sum(len(line) + 90 for line in log.lines)
    assert sum(slept) == pytest.approx((cost - 32_000) / 100_000, abs=0.09)
    assert len(slept) < 15


def test_the_lines_of_a_channel_that_finishes_do_not_wait_for_the_first_lines_of_others():
    log, writer = BlockingLog(), LogWriter()
    others, ending = [writer.open(log) for _ in range(200)], writer.open(log)
    for channel in others:
        channel.report("Running")
    assert log.called.wait(SECONDS)  # the writer writes the line of one of them
    ending.report("Complete")
    thread = threading.Thread(target=ending.finish)
    thread.start()
    wait_until(lambda: ending in writer._finishing, SECONDS)
    log.release()
    thread.join(SECONDS)
    for channel in others:
        channel.finish()
    assert log.lines.index("Complete") == 1
    assert log.lines.count("Running") == 200


class FakeClock:
    """Clock that moves only in `sleep`."""

    def __init__(self, slept):
        self._slept = slept

    def monotonic(self):
        return sum(self._slept)

    def sleep(self, seconds):
        self._slept.append(seconds)
        time.sleep(0)


def test_the_thread_ends_with_the_last_channel():
    writer, log = LogWriter(), BlockingLog()
    log.release()
    for _ in range(2):
        with writer.open(log) as channel:
            channel.put(LogLine("node-0", "x"))
        wait_until(lambda: not writer.is_running, SECONDS)
    assert len(log.lines) == 2


def test_the_lines_of_a_writer_whose_thread_was_refused_are_written_with_the_next_line():
    log = BlockingLog()
    log.release()
    with RefusedStarts(lambda _: True):
        channel = LogWriter().open(log)
        channel.put(LogLine("node-0", "1"))
    assert not log.called.wait(0)
    channel.put(LogLine("node-0", "2"))
    channel.finish()
    assert log.lines == ["[node-0] 1", "[node-0] 2"]
    assert log.threads == {"log-writer"}


def test_without_a_thread_the_thread_that_closes_the_log_writes_its_lines():
    log = BlockingLog()
    log.release()
    with RefusedStarts(lambda _: True), LogWriter().open(log) as channel:
        channel.put(LogLine("node-0", "1"))
    assert log.lines == ["[node-0] 1"]
    assert log.threads == {threading.current_thread().name}


@pytest.mark.parametrize("refused", [4, 1_000_000])
def test_an_event_loop_that_closes_a_log_tries_again_to_start_the_thread(refused, monkeypatch, caplog):
    for name in ("RETRY_SECONDS", "_DRAIN_SECONDS", "_NEWEST_SECONDS"):
        monkeypatch.setattr(log_writer, name, SECONDS if refused < 10 and name != "RETRY_SECONDS" else 0.01)
    log = BlockingLog()
    log.release()

    async def write() -> None:
        with RefusedStarts(lambda n: n <= refused):
            channel = LogWriter().open(log)
            channel.put(LogLine("node-0", "1"))
            await channel.finish_async()

    asyncio.run(write())
    is_lost = refused > 10
    assert log.lines == ([] if is_lost else ["[node-0] 1"])
    assert ("1 lines of a log were not written" in caplog.text) == is_lost


def test_an_error_of_a_callback_is_logged_once_and_ends_no_log(caplog):
    writer, first, second = LogWriter(), BlockingLog(), BlockingLog()

    def fail(_: object) -> None:
        raise ValueError("no")

    for log in (first, second):
        log.release()
    with writer.open(first, on_written=fail) as channel, writer.open(second) as other:
        for n in range(3):
            channel.put(LogLine("node-0", str(n)))
        other.put(LogLine("node-0", "of another job"))
    assert first.lines == ["[node-0] 0", "[node-0] 1", "[node-0] 2"]
    assert second.lines == ["[node-0] of another job"]
    assert len(caplog.records) == 1
