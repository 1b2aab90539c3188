"""Tests of a log queue whose lines arrive faster than the log takes them.

Every line is written, or counted in one notice at its place.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.client import LogLine, RateLimit
from trainjob.client.log_lines import LoggedContainer, LogNotice
from trainjob.client.log_queue import LogQueue, QueueLimits, SkippedLines, size_of
from trainjob.client.log_rate import TokenBucket

SMALL_LIMITS = QueueLimits(lines=8, bytes=200, max_wait=2.0, kept_lines=12, kept_bytes=60)
CONTAINERS = {source: LoggedContainer(source, "ns", f"pod-{source}", source, "node") for source in "abc"}
OFFER, TAKE, PASS, CUT, END = "offer", "take", "pass", "cut", "end"
texts = st.text(alphabet="ab\u00e9 ", max_size=30)
steps = st.lists(
    st.one_of(
        st.tuples(st.just(OFFER), st.sampled_from("abc"), texts, st.booleans()),
        st.tuples(st.just(OFFER), st.just("a"), texts, st.just(True)),
        st.tuples(st.just(TAKE), st.integers(1, 5)),
        st.tuples(st.just(PASS), st.floats(0.1, 3.0)),
        st.just((CUT,)),
        st.just((END,)),
    ),
    max_size=200,
)


def take_all(queue):
    taken = []
    while (item := queue.take()) is not None:
        taken.append(item)
    return taken


def run_actions(actions):
    """Run the actions on a queue; return the accepted and the taken lines, and the queue."""
    queue, now, accepted, taken = LogQueue(SMALL_LIMITS), 0.0, [], []
    for kind, *values in actions:
        if kind == OFFER:
            source, text, may_wait = values
            line = LogLine(source, f"{len(accepted)} {text}", log=CONTAINERS[source])
            while not queue.offer(line, now, may_wait=may_wait):
                assert queue.seconds_to_skip(now) > 0  # otherwise the reader would wait forever
                now += queue.seconds_to_skip(now)
            accepted.append(line)
        elif kind == TAKE:
            taken += [item for _ in range(values[0]) if (item := queue.take()) is not None]
        elif kind == PASS:
            now += values[0]
        elif kind == CUT:
            queue.skip_all_but_newest()
        else:
            queue.stop_blocking()
        held = sum(size_of(item) for item in queue._queue if isinstance(item, LogLine))
        assert held == queue._bytes
        assert len(queue) <= SMALL_LIMITS.lines + 2 * 3 * (SMALL_LIMITS.kept_lines + 1)
    return accepted, taken, queue


@given(steps)
def test_every_line_is_written_once_in_order_or_counted_in_a_notice_at_its_place(actions):
    accepted, taken, queue = run_actions(actions)
    taken += take_all(queue)
    assert len(queue) == 0
    by_source = defaultdict(list)
    for item in taken:
        by_source[item.source].append(item)
    for source in "abc":
        offered = [line for line in accepted if line.source == source]
        before = None
        for item in by_source[source]:
            if isinstance(item, SkippedLines):
                assert not isinstance(before, SkippedLines)  # one notice for each gap
                missing, offered = offered[: item.lines], offered[item.lines :]
                assert (item.lines, item.bytes) == (len(missing), sum(map(size_of, missing)))
                assert item.command == CONTAINERS[source].command()
                assert item.lines > 0
            else:
                assert item == offered.pop(0)
            before = item
        assert not offered
        assert not isinstance(before, SkippedLines)  # the newest line is always written


@pytest.mark.parametrize("later", [5, 500])
def test_a_notice_is_written_even_if_the_lines_around_it_are_skipped(later):
    queue, notice = LogQueue(SMALL_LIMITS), LogNotice("a", "output may be missing")
    for n in range(300):
        queue.offer(LogLine("a", f"{n}"), 0.0, may_wait=False)
    queue.offer(notice, 0.0, may_wait=False)
    for n in range(later):
        queue.offer(LogLine("a", f"later {n}"), 0.0, may_wait=False)
    taken = take_all(queue)
    assert notice in taken
    assert (
        len([one for one in taken if type(one) is LogLine])
        + sum(one.lines for one in taken if isinstance(one, SkippedLines))
        == 300 + later
    )


@given(steps, st.integers(1, 40))
def test_the_last_lines_are_written_after_any_number_of_lines(actions, count):
    *_, queue = run_actions([*actions, (END,)])
    last = [LogLine("a", f"last {n}") for n in range(count)]
    for line in last:
        assert queue.offer(line, 1e6, may_wait=False)
    queue.skip_all_but_newest()
    kept = [item for item in take_all(queue) if item in last]
    assert kept == last[-len(kept) :]
    by_bytes = sum(sum(map(size_of, last[-n:])) <= SMALL_LIMITS.kept_bytes // 3 for n in range(1, count + 1))
    assert len(kept) >= max(1, min(count, SMALL_LIMITS.kept_lines // 3, by_bytes))


def test_readers_wait_before_lines_are_skipped_and_the_notice_says_how_many():
    queue = LogQueue(QueueLimits(lines=4, max_wait=10.0, kept_lines=2))
    lines = [LogLine("node-0", "x" * 99, log=LoggedContainer("node-0", "ns", "p", "u", "node")) for _ in range(50_000)]
    assert all(queue.offer(line, 0.0) for line in lines[:4])
    assert not queue.offer(lines[4], 0.0)
    assert queue.seconds_to_skip(0.0) == 10.0
    assert not queue.offer(lines[4], 9.9)
    assert all(queue.offer(line, 10.0) for line in lines[4:])
    written = take_all(queue)
    assert str(written[4]) == (
        "[node-0] 49,994 lines (5.0 MB) were skipped here, because they arrived faster than this log can be written; "
        "while the pod exists, read them with: kubectl logs p -c node -n ns"
    )
    assert len(written) == 7
    assert queue.offer(lines[0], 11.0)


def test_a_queue_that_drains_to_its_half_now_and_then_skips_nothing():
    queue, now = LogQueue(QueueLimits(lines=4, max_wait=10.0)), 0.0
    for n in range(100):
        while not queue.offer(LogLine("node-0", str(n)), now):
            now += 6.0
            for _ in range(3):
                assert not isinstance(queue.take(), SkippedLines)


def test_pieces_of_a_long_line_count_as_one():
    queue = LogQueue(QueueLimits(lines=1, max_wait=0.0, kept_lines=1))
    for text, continued in (("first", False), ("aaaa", True), ("bb", False), ("last", False)):
        assert queue.offer(LogLine("node-0", text, continued=continued), 0.0)
    assert take_all(queue)[1:] == [SkippedLines("node-0", 1, 7), LogLine("node-0", "last")]


@pytest.mark.parametrize("size", [10, 1000, 100_000])
def test_lines_of_every_length_keep_the_rate(size):
    limit, now, written = RateLimit(bytes_per_second=1000, burst=2000, line_overhead=100), 0.0, 0
    assert limit.cost("äö") == 104
    bucket = TokenBucket(limit, now)
    while now < 10_000:
        now += bucket.seconds_to_wait(now)
        bucket.spend("x" * size, now, now)
        written += size + 100
    assert written <= 2000 + 1000 * now + size + 100
    assert written >= 1000 * now


def test_slow_writes_halve_the_rate_which_recovers():
    limit = RateLimit(bytes_per_second=1000, burst=2000, slow_write=0.05)
    bucket, now, rates = TokenBucket(limit, 0.0), 0.0, []
    for _ in range(20):
        bucket.spend("x", now, now + 0.1)
        now += 0.1
        rates.append(bucket.rate)
    assert rates[0] == pytest.approx(500, rel=0.01)
    assert 62 <= min(rates) < 70
    assert bucket.seconds_to_wait(now) == 0
    for _ in range(100):
        now += 1.0
        bucket.spend("x", now, now + 0.001)
    assert bucket.rate == 1000
