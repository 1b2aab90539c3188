"""Tests of the proof that a log was received to its end, and of notices about gaps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.support.log_endpoint import CONTAINER, FakeStream, LogEndpoint, read_lines, split_at
from trainjob.client.log_end import LastLine
from trainjob.client.log_notices import pods_are_unknown
from trainjob.client.log_reader import LogReader, read_last_line

SECOND = 10**9
LINES = [(n * SECOND // 2, "F", b"line %d" % n) for n in range(8)]
LOG = LogEndpoint(LINES).respond(None, len(LINES))
LAST_LINE = LOG[LOG.rindex(b"\n", 0, -1) + 1 :]


def last_line_of(response):
    return read_last_line(FakeStream(response))


@given(st.integers(0, len(LOG)), st.lists(st.integers(0, len(LOG)), max_size=4))
def test_only_a_whole_log_ends_with_the_last_line(received, cuts):
    reader = LogReader(CONTAINER)
    sent = LOG[:received]
    read_lines(reader, *split_at(sent, [min(cut, received) for cut in cuts]))
    assert reader.has_read_to(last_line_of(LAST_LINE), nothing_new=False) == (received == len(LOG))


@given(st.integers(0, len(LAST_LINE) - 1))
def test_a_truncated_last_line_is_no_proof(size):
    reader = LogReader(CONTAINER)
    read_lines(reader, LOG)
    assert not reader.has_read_to(last_line_of(LAST_LINE[:size]), nothing_new=False)


def test_a_line_without_an_end_is_a_last_line():
    reader, line = LogReader(CONTAINER), b"2026-01-01T00:00:01.000000000Z no end"
    read_lines(reader, line[:12], line[12:])
    assert reader.has_read_to(last_line_of(line), nothing_new=False)


def test_the_last_of_several_records_is_proof_if_another_stream_brought_nothing_new():
    reader, records = LogReader(CONTAINER), [(0, "P", b"a" * 100), (7, "F", b"the end")]
    read_lines(reader, LogEndpoint(records).respond(None, 2))
    last = last_line_of(LogEndpoint(records[1:]).respond(None, 1))
    assert not reader.has_read_to(last, nothing_new=False)
    assert reader.has_read_to(last, nothing_new=True)


def test_a_newline_may_be_a_record_of_its_own():
    """CRI-O writes the parts of a line as they arrive."""
    reader, records = LogReader(CONTAINER), [(0, "P", b"the end"), (7, "F", b"")]
    last = last_line_of(LogEndpoint(records).respond_to_tail())
    read_lines(reader, LogEndpoint(records).respond(None, 1))
    assert not reader.has_read_to(last, nothing_new=True)
    read_lines(reader, LogEndpoint(records).respond(reader.since, 2))
    assert not reader.has_read_to(last, nothing_new=False)
    assert reader.has_read_to(last, nothing_new=True)


def test_a_running_container_may_write_more():
    reader = LogReader(CONTAINER)
    read_lines(reader, LOG)
    assert reader.has_read_past(last_line_of(LOG.splitlines(keepends=True)[-2]))
    assert not reader.has_read_past(last_line_of(LAST_LINE))
    assert not reader.has_read_past(LastLine())


def test_notices_name_container_time_reason_and_command():
    notice = CONTAINER.missing("its pod was deleted", after=(1767225601, b"5"))
    assert str(notice) == (
        "[node-0] output of container node of pod tune-node-0-0-x may be missing after 2026-01-01T00:00:01Z: its pod "
        "was deleted; while the pod exists, read it with: kubectl logs tune-node-0-0-x -c node -n team "
        "--since-time=2026-01-01T00:00:01Z"
    )
    earlier = CONTAINER.missing("it was restarted", previous=True, run=2)
    assert "output of run 3 of container node" in earlier.text
    assert earlier.text.endswith("kubectl logs tune-node-0-0-x -c node -n team --previous")
    skipped = CONTAINER.missing("it was restarted", where="nowhere", skipped_runs=2)
    assert skipped.text.startswith("output of 2 earlier runs of container node")
    assert str(pods_are_unknown("tune", "team", "no list")).startswith("output of TrainJob team/tune may be missing")
