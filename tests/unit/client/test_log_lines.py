"""Tests of log streams that are cut, ended and resumed anywhere.

No line is lost, and none is reported twice.
"""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.log_endpoint import (
    CONTAINER,
    FakeStream,
    LogEndpoint,
    join_lines,
    last_frame,
    log_records,
    read_lines,
    split_at,
    written_lines,
)
from trainjob.client.log_lines import LogLine, LogNotice, Tail
from trainjob.client.log_reader import LogReader, read_last_line
from trainjob.client.log_resume import OtherLog
from trainjob.errors import ClusterUnreachable

LONGEST = 1 << 18


# -- one stream -------------------------------------------------------------------------------------------------------

LOG = (
    "2026-01-01T00:00:01.000000000Z epochs: 4\n2026-01-01T00:00:02.000000000Z 10%\r20%\r30%\n"
    "2026-01-01T00:00:03.000000000Z caf\u00e9 \u2588\u2588\r\n2026-01-01T00:00:04.000000000Z \n"
    "2026-01-01T00:00:04.000000000Z \r\rA\r\rB\r\r\n2026-01-01T00:00:04.000000000Z no end"
).encode()
EXPECTED_LINES = [
    LogLine("node-0", "epochs: 4"),
    LogLine("node-0", "10%", frame=True),
    LogLine("node-0", "20%", frame=True),
    LogLine("node-0", "30%"),
    LogLine("node-0", "caf\u00e9 \u2588\u2588"),
    LogLine("node-0", ""),
    LogLine("node-0", "A", frame=True),
    LogLine("node-0", "B"),
    LogLine("node-0", "no end"),
]


@given(st.lists(st.integers(0, len(LOG)), max_size=6))
def test_a_stream_may_be_cut_at_any_byte(cuts):
    reader = LogReader(CONTAINER)
    assert read_lines(reader, *split_at(LOG, cuts)) + reader.flush() == EXPECTED_LINES


TEXTS = [b"x", b"", b"caf\xc3\xa9", b"\xff", b"10%\r20%", b"2026-01-01T00:00:09.000000000Z x", b"trainjob steps: {}"]
STAMPED_LINES = st.builds(
    lambda second, fraction, zone, text: b"2026-01-01T00:00:%02d.%09d%s %s\n" % (second, fraction, zone, text),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from([b"Z"] * 9 + [b"+02:00"]),
    st.sampled_from(TEXTS),
)
UNSTAMPED_LINES = st.sampled_from([b"text\n", b"\n", b"2026-W01-1T00:00:01.000000000Z x\n"])


@given(st.lists(STAMPED_LINES, max_size=30), st.lists(UNSTAMPED_LINES, max_size=1), st.booleans(), st.integers(0, 2))
def test_many_lines_at_once_are_read_like_single_ones(lines, others, in_order, written):
    lines = [*(sorted(lines) if in_order else lines), *others]
    results = []
    for chunks in ([*lines[:1], b"".join(lines[1:])], [part for line in lines for part in (line[:-1], b"\n")]):
        reader = LogReader(CONTAINER, written_until=(1767225600 + written, b"000000001") if written else None)
        output = read_lines(reader, *chunks) + reader.flush()
        found = [(line.text, line.frame, line.time, line.is_written) for line in output]
        again = join_lines(read_lines(reader, *chunks))
        results.append((found, reader.extent, reader.since, reader.first, reader.newest, again))
    assert results[0] == results[1]


def test_an_error_text_of_the_kubelet_is_returned_once():
    reader, error_text = LogReader(), b"failed to create fsnotify watcher: too many open files"
    assert join_lines(read_lines(reader, error_text)) == []
    lines = read_lines(reader, b"2026-01-01T00:00:01.000000000Z one\n", error_text)
    assert join_lines(lines) == [error_text.decode(), "one"]
    assert join_lines(read_lines(reader, b"2026-01-01T00:00:01.000000000Z one\n", error_text) + reader.flush()) == []


def test_an_invalid_time_is_text():
    assert join_lines(read_lines(LogReader(), b"2026-99-01T00:00:01.000000000Z x\n")) == [
        "2026-99-01T00:00:01.000000000Z x"
    ]


# -- streams that end anywhere ----------------------------------------------------------------------------------------

breaks = st.lists(
    st.tuples(
        st.floats(0, 1),  # how much of the log was written by then
        st.one_of(st.floats(0, 1), st.just(1.0)),  # how much of the response arrives
        st.booleans(),  # whether the stream ends without an error
        st.lists(st.floats(0, 1), max_size=3),  # where it is cut into chunks
    ),
    max_size=5,
)


def read_over_streams(endpoint, plan):
    """Return the lines of these streams and of complete ones that prove the end."""
    reader, lines, whole, is_at_end = LogReader(CONTAINER), [], (1.0, 1.0, True, []), False
    last_line = read_last_line(FakeStream(endpoint.respond_to_tail()))
    everything = LogReader()
    read_lines(everything, endpoint.respond(None, len(endpoint.records)))
    for grown, part, clean, cuts in [*sorted(plan, key=lambda stream: stream[0]), whole, whole]:
        extent, response = reader.extent, endpoint.respond(reader.since, round(grown * len(endpoint.records)))
        sent = response[: round(part * len(response))]
        lines += read_lines(reader, *split_at(sent, [round(at * len(sent)) for at in cuts]), broken=not clean)
        is_at_end = reader.has_read_to(last_line, nothing_new=reader.extent == extent)
        assert not (is_at_end and part == grown == 1.0) or reader.extent == everything.extent
    assert is_at_end
    assert not any(isinstance(line, LogNotice) for line in lines)
    return join_lines(lines + reader.flush())


@given(log_records(), breaks, st.sampled_from([0, 2, -9]))
@example([(1, "P", b"aaa"), (10**9, "F", b"bbb"), (10**9 + 5, "F", b"ccc")], [(1.0, 1.0, True, [])], 0)
@example([(1, "P", b"aaa"), (2, "F", b"bbb")], [(0.5, 1.0, True, [])], 0)
@example([(7200 * 10**9, "F", b"a"), (7201 * 10**9, "F", b"b")], [(0.5, 1.0, True, [])], 2)
def test_each_line_is_returned_once_however_the_streams_end(records, plan, hours):
    assert read_over_streams(LogEndpoint(records, hours), plan) == [last_frame(line) for line in written_lines(records)]


@given(log_records(out_of_order=True), breaks)
def test_each_line_is_returned_once_also_if_times_are_out_of_order(records, plan):
    assert read_over_streams(LogEndpoint(records), plan) == [last_frame(line) for line in written_lines(records)]


@pytest.mark.parametrize("back", [2, 60, 3600])
@pytest.mark.parametrize("grown", [[6], [7], [7, 8, 9], [7, 12], [12, 20], [20, 23, 26, 29]])
def test_no_line_is_lost_if_the_clock_is_set_back(back, grown):
    """The clock is set back after the fifth line, and later passes its earlier time again."""
    times = [1000 * n for n in range(5000, 5005)] + [1000 * (5004 - back) + 400 * n for n in range(20)]
    times += [max(times) + 1000 * n for n in range(1, 6)]
    endpoint = LogEndpoint([(moment * 10**6, "F", b"%d" % n) for n, moment in enumerate(times)])
    plan = [(count / 30, 1.0, True, []) for count in grown]
    assert read_over_streams(endpoint, plan) == [str(n) for n in range(30)]


def test_no_line_is_repeated_if_many_lines_have_the_newest_time():
    """After the first line, whole chunks of lines are read at once."""
    records = [(10**9 * (1 + n // 4), "F", b"%d" % n) for n in range(12)]
    reader, endpoint = LogReader(CONTAINER), LogEndpoint(records)
    lines = read_lines(reader, *split_at(endpoint.respond(None, 11), [35, 200]))
    lines += read_lines(reader, endpoint.respond(reader.since, 12))
    assert join_lines(lines) == [str(n) for n in range(12)]


def test_newer_lines_are_returned_after_the_kubelet_has_rotated_the_log():
    records = [(10**9 + n, "F", b"%d" % n) for n in range(10)]
    reader = LogReader()
    first = read_lines(
        reader,
        LogEndpoint(records[:6]).respond(None, 6) + LogEndpoint.format_timestamp(LogEndpoint([]), 10**9 + 6) + b"6 be",
    )
    rotated = LogEndpoint([*records[4:5], *records[7:]])
    second = read_lines(reader, rotated.respond(reader.since, 99))
    assert join_lines(first + second) == ["0", "1", "2", "3", "4", "5", "6 be", "7", "8", "9"]


@pytest.mark.parametrize("is_empty_before", [False, True])
@pytest.mark.parametrize("gone", range(8))
def test_a_line_is_completed_after_lines_before_it_have_gone_with_a_rotated_file(gone, is_empty_before):
    """More lines are known than the stream repeats; after a stream without a line, it has the whole file."""
    records = [(n * 10**8, "F", b"line %d" % n) for n in range(8)]
    reader, endpoint = LogReader(CONTAINER), LogEndpoint(records[gone:])
    lines = read_lines(reader, LogEndpoint(records).respond(None, 8)[:-3])
    if is_empty_before:
        lines += read_lines(reader, b"")
        assert reader.since is None
    lines += read_lines(reader, endpoint.respond(reader.since, 8))
    assert reader.has_read_to(read_last_line(FakeStream(endpoint.respond_to_tail())), nothing_new=False)
    assert join_lines(lines + reader.flush()) == [f"line {n}" for n in range(8)]


def test_a_log_was_not_read_to_its_end_if_its_last_line_was_taken_for_a_known_one():
    """After a rotation, nothing distinguishes a cut line from whole ones of the same time."""
    records = [(10**9, "F", b"line %d" % n) for n in range(3)]
    reader, rotated = LogReader(CONTAINER), LogEndpoint(records[2:]).respond(None, 1)
    lines = read_lines(reader, LogEndpoint(records).respond(None, 3)[:-3])
    lines += read_lines(reader, rotated)
    assert join_lines(lines) == ["line 0", "line 1"]
    assert not reader.has_read_to(read_last_line(FakeStream(rotated)), nothing_new=True)


distinct_moments = st.lists(st.sampled_from([1, 1000, 10**8, 999_999_999, 10**9, 3 * 10**9]), max_size=10)


@given(distinct_moments, breaks, st.lists(st.floats(0, 1), min_size=5, max_size=5))
@example([10**8] * 7, [(1.0, 0.98, True, []), (1.0, 1.0, True, [])], [0.0, 0.5, 0.0, 0.0, 0.0])
def test_no_line_is_lost_silently_if_the_kubelet_rotates_the_log(moments, plan, rotations):
    times = itertools.accumulate(moments, initial=10**9)
    records = [(time, "F", b"line %d" % n) for n, time in enumerate(times)]
    reader, lines, gone, whole, is_at_end = LogReader(CONTAINER), [], 0, (1.0, 1.0, True, []), False
    streams = [*zip(sorted(plan, key=lambda stream: stream[0]), rotations, strict=False), (whole, 0.0), (whole, 0.0)]
    for (grown, part, clean, cuts), rotated in streams:
        count = round(grown * len(records))
        if reader.newest:  # if nothing was read, nothing shows that the log was rotated
            gone = max(gone, round(rotated * count))
        extent, response = reader.extent, LogEndpoint(records[gone:]).respond(reader.since, count - gone)
        sent = response[: round(part * len(response))]
        chunks = split_at(sent, [round(at * len(sent)) for at in cuts])
        lines += read_lines(reader, *chunks, broken=not clean, may_have_gap=True)
        last_line = read_last_line(FakeStream(LogEndpoint(records[gone:]).respond_to_tail()))
        is_at_end = reader.has_read_to(last_line, nothing_new=reader.extent == extent)
    lines += reader.flush()
    texts = [line.text for line in lines if not isinstance(line, LogNotice)]
    expected = [f"line {n}" for n in range(len(records))]
    assert texts == expected or len(texts) < len(lines) or not is_at_end
    whole_lines = [text for text in texts if text in expected]
    assert whole_lines == sorted(set(whole_lines), key=expected.index)


def test_a_notice_takes_the_place_of_lines_in_a_rotated_file():
    records = [(n * 10**9 // 2, "F", b"line %d" % n) for n in range(8)]
    reader, whole = LogReader(CONTAINER), LogEndpoint(records).respond(None, 8).splitlines(keepends=True)
    lines = read_lines(reader, *whole[:2], whole[2][:-3])
    with pytest.raises(OtherLog):
        read_lines(reader, *whole[6:])
    lines += read_lines(reader, *whole[6:], may_have_gap=True)
    texts = [line.text for line in lines if not isinstance(line, LogNotice)]
    assert texts == ["line 0", "line 1", "line", "line 6", "line 7"]
    notice = lines[3]
    assert isinstance(notice, LogNotice)
    assert "may be missing between 2026-01-01T00:00:01Z and 2026-01-01T00:00:03Z" in notice.text
    assert "/var/log/pods/team_tune-node-0-0-x_7f8a/node" in notice.text


@pytest.mark.parametrize("start", [-300, 999])
def test_the_log_of_another_run_is_noticed_also_within_the_same_second(start):
    """A container that fails at once may run several times within a second."""
    reader = LogReader()
    read_lines(reader, LogEndpoint([(10**9 + n, "F", b"%d" % n) for n in range(0, 1000, 7)]).respond(None, 999))
    other = LogEndpoint([(10**9 + start + n, "F", b"other") for n in range(1000)])
    with pytest.raises(OtherLog):
        read_lines(reader, other.respond(reader.since, 999))
    assert join_lines(reader.flush()) == []


class UnframedStream(FakeStream):
    """Response without a length, because its headers were cut or a proxy speaks HTTP/1.0."""

    chunked, headers = False, {}


def test_a_response_without_a_length_counts_as_complete_only_if_it_repeats_known_lines():
    reader, response = LogReader(), b"2026-01-01T00:00:01.000000000Z one\n2026-01-01T00:00:02.000000000Z two"
    for sent, expected in ((b"", []), (response[:40], ["one"]), (response, [])):
        lines = []
        with pytest.raises(ClusterUnreachable):
            for batch in reader.read(UnframedStream(sent)):
                lines += batch
        assert join_lines(lines) == expected[: sent.count(b"\n")]
    assert join_lines([*itertools.chain(*reader.read(UnframedStream(response))), *reader.flush()]) == ["two"]


# -- long lines -------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from([b"x", "\u00e9".encode(), "\u2588".encode(), "\U0001f600".encode(), b"\x80", b"\xe2\x88"]),
    st.integers(0, 5),
    st.sampled_from([LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST + 3]),
    st.floats(0, 1),
    st.booleans(),
)
def test_a_long_line_is_returned_once_in_pieces(letter, before, size, part, clean):
    line = b"-" * before + letter * (size // len(letter))
    endpoint = LogEndpoint([(1, "F", b"first"), (2, "F", line), (3, "F", b"last")])
    assert read_over_streams(endpoint, [(1.0, part, clean, [])]) == ["first", line.decode(errors="replace"), "last"]


def test_a_line_of_ten_megabytes_takes_bounded_memory(evidence):
    size = 10 << 20
    line = b"2026-01-01T00:00:01.000000000Z " + b"0123456789abcde\xff" * (size // 16) + b"\n"
    half, reader, returned, longest = line[: len(line) // 2], LogReader(), 0, 0
    tracemalloc.start()
    for sent in (half, line):
        for batch in reader.read(FakeStream(sent)):
            returned += sum(len(piece.text) for piece in batch)
            longest = max([longest, *(len(piece.text) for piece in batch)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    fault = "a line of 10 MiB, its stream ended in the middle"
    evidence("logs", fault=fault, lines=1, lost=int(returned < size), repeated=int(returned > size))
    assert (returned, longest) == (size, LONGEST)
    assert peak < 8 * LONGEST


def test_a_progress_bar_of_many_frames_is_one_line(evidence):
    frames = [b"%6d/100000 %s" % (n, b"#" * 60) for n in range(100_000)]
    data = b"2026-01-01T00:00:01.000000000Z " + b"\r".join(frames) + b"\n"
    reader, kept, drawn = LogReader(), [], 0
    tail = Tail(20)
    tracemalloc.start()
    for end in (len(data) // 3, len(data)):
        for batch in reader.read(FakeStream(memoryview(data)[:end].tobytes())):
            drawn += sum(line.frame for line in batch)
            kept += [line.text for line in batch if not line.frame]
            tail.extend(batch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counts = {"lost": int(frames[-1].decode() not in kept), "repeated": len(kept) - len(set(kept))}
    evidence("logs", fault="a progress bar of 100,000 frames, collapsed", lines=1, **counts)
    assert kept == list(tail.lines) == [frames[-1].decode()]
    assert drawn == len(frames) - 1
    assert peak < len(data) + 8 * LONGEST


def test_the_time_to_read_a_log_grows_only_with_its_length():
    """The log arrives in small chunks, has only carriage returns, and never has a newline."""
    data = b"2026-01-01T00:00:01.000000000Z " + b"a" * (LONGEST - 1) + b"\r" * 100_000
    reader = LogReader()
    lines = read_lines(reader, *(data[at : at + 2] for at in range(0, len(data), 2)))
    assert join_lines(lines + reader.flush()) == ["a" * (LONGEST - 1)]


@pytest.mark.parametrize("text", ["x" * 5000, "y" * (LONGEST + 10)])
def test_the_tail_keeps_the_beginning_of_a_very_long_line(text):
    tail = Tail(2)
    endpoint = LogEndpoint([(1, "F", b"one"), (2, "F", text.encode()), (3, "F", b"two")])
    reader = LogReader()
    for batch in reader.read(FakeStream(endpoint.respond(None, 3))):
        tail.extend(batch)
    assert tail.lines == (text[:2000] + "\u2026", "two")
