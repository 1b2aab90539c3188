"""Tests of log streams that are cut, ended and resumed anywhere.

No line is lost, and none is reported twice.
"""

from __future__ import annotations

import itertools
import tracemalloc
from datetime import datetime, timedelta, timezone

import pytest
import urllib3
from hypothesis import example, given
from hypothesis import strategies as st

from trainjob.client.log_lines import LogLine, LogReader, Tail
from trainjob.errors import ClusterUnreachable

LONGEST = 1 << 18
EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)


class FakeStream:
    """What urllib3 gives for a streamed answer, in these chunks; `broken` ends it like a connection that is reset."""

    chunked = True

    def __init__(self, *chunks, broken=False):
        self.chunks, self.is_broken = chunks, broken

    def stream(self, amt, decode_content):
        for chunk in self.chunks:
            yield from (chunk[at : at + amt] for at in range(0, len(chunk), amt))
        if self.is_broken:
            raise urllib3.exceptions.ProtocolError("reset")


class LogEndpoint:
    """The kubelet's log endpoint, by k8s.io/cri-client 0.36 `pkg/logs/logs.go`, over records of a runtime.

    A record is (moment in nanoseconds, "P" or "F", bytes); `hours` is the node's offset from UTC.
    """

    def __init__(self, records, hours=0):
        self.records, self.zone = records, timezone(timedelta(hours=hours))

    def respond(self, since, count):
        """What is sent of the first `count` records."""
        sent, new_line = [], True
        least = -1 if since is None else round((since - EPOCH).total_seconds()) * 10**9
        for moment, tag, text in self.records[:count]:
            if moment >= least:
                sent += [self.format_timestamp(moment)] * new_line + [text] + [b"\n"] * (tag == "F")
            new_line = tag == "F" or not text
        return b"".join(sent)

    def format_timestamp(self, moment):
        whole = (EPOCH + timedelta(seconds=moment // 10**9)).astimezone(self.zone)
        zone = whole.strftime("%z")
        shown = "Z" if zone == "+0000" else f"{zone[:3]}:{zone[3:]}"
        return f"{whole:%Y-%m-%dT%H:%M:%S}.{moment % 10**9:09d}{shown} ".encode()


def last_frame(line):
    """Return the text of a line that a terminal shows at its end."""
    frames = [frame for frame in line.split(b"\r") if frame]
    return (frames[-1] if frames else b"").decode(errors="replace")


def join_lines(lines):
    """Return the texts of whole lines, joined from their pieces, without frames."""
    texts, held = [], ""
    for line in lines:
        held += line.text
        if not line.goes_on:
            texts += [] if line.frame else [held]
            held = ""
    assert not held
    return texts


def read_lines(transcript, *chunks, broken=False):
    lines = []
    try:
        for batch in transcript.read(FakeStream(*chunks, is_broken=broken)):
            lines += batch
    except ClusterUnreachable:
        assert broken
    return lines


def split_at(data, cuts):
    edges = [0, *sorted(cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


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
def test_cut_at_any_byte(cuts):
    transcript = LogReader("node-0")
    assert read_lines(transcript, *split_at(LOG, cuts)) + transcript.flush() == EXPECTED_LINES


def test_what_the_kubelet_itself_says_is_told_once():
    transcript, said = LogReader(), b"failed to create fsnotify watcher: too many open files"
    assert join_lines(read_lines(transcript, said)) == []
    lines = read_lines(transcript, b"2026-01-01T00:00:01.000000000Z one\n", said)
    assert join_lines(lines) == [said.decode(), "one"]
    assert join_lines(read_lines(transcript, b"2026-01-01T00:00:01.000000000Z one\n", said) + transcript.flush()) == []


def test_a_time_that_is_none_is_text():
    assert join_lines(read_lines(LogReader(), b"2026-99-01T00:00:01.000000000Z x\n")) == [
        "2026-99-01T00:00:01.000000000Z x"
    ]


# -- streams that end anywhere ----------------------------------------------------------------------------------------

TIMESTAMP = b"2026-01-01T00:00:01.000000000Z "
moments = st.sampled_from([0, 0, 0, 1, 1000, 10**8, 999_999_999, 10**9, 3 * 10**9])
contents = st.one_of(
    st.binary(max_size=8).map(lambda text: text.replace(b"\n", b"")),
    st.text("ab\u00e9\u2588\U0001f600", max_size=6).map(str.encode),
    st.lists(st.sampled_from([b"\r", b"\r", b"10%", TIMESTAMP]), max_size=6).map(b"".join),
)


@st.composite
def log_records(draw, out_of_order=False):
    """Records of a log, each line as one or several; with `back`, lines may be up to a second older than others.

    None goes on with what looks like a record's time: in a stream that begins there nobody could tell it from one.
    """
    records, newest = [], 0
    now = draw(st.integers(10**9, 3 * 10**9))
    for line in draw(st.lists(contents, max_size=10)):
        pieces = draw(st.sampled_from([1, 1, 1, 2, 3]))
        if any(line[len(line) * part // pieces :].startswith(TIMESTAMP) for part in range(1, pieces)):
            pieces = 1
        for part in range(pieces):
            now += draw(moments)
            text = line[len(line) * part // pieces : len(line) * (part + 1) // pieces]
            if text or part == pieces - 1:
                records.append((now, "F" if part == pieces - 1 else "P", text))
        if out_of_order and draw(st.booleans()):
            newest = max(newest, now)
            now = newest - draw(st.integers(0, 10**9))
    if records and draw(st.booleans()) and records[-1][2]:
        records[-1] = (*records[-1][:1], "P", records[-1][2])  # no newline at the end
    return records


def written_lines(records):
    """Return the lines as the process wrote them."""
    text = b"".join(text + b"\n" * (tag == "F") for _, tag, text in records)
    *lines, rest = text.split(b"\n")
    return lines + [rest] * bool(rest)


breaks = st.lists(
    st.tuples(
        st.floats(0, 1),  # how much of the log is written by then
        st.one_of(st.floats(0, 1), st.just(1.0)),  # how much of the answer comes
        st.booleans(),  # whether it seems to be the end
        st.lists(st.floats(0, 1), max_size=3),  # where it is cut into chunks
    ),
    max_size=5,
)


def read_over_streams(endpoint, plan):
    """All that is told over these streams and a last one that is whole; and how the streams went."""
    transcript, lines = LogReader(), []
    for grown, part, clean, cuts in [*sorted(plan, key=lambda one: one[0]), (1.0, 1.0, True, [])]:
        answer = endpoint.answer(transcript.since, round(grown * len(endpoint.records)))
        sent = answer[: round(part * len(answer))]
        lines += read_lines(transcript, *split_at(sent, [round(at * len(sent)) for at in cuts]), broken=not clean)
    return join_lines(lines + transcript.flush())


@given(log_records(), breaks, st.sampled_from([0, 2, -9]))
@example([(1, "P", b"aaa"), (10**9, "F", b"bbb"), (10**9 + 5, "F", b"ccc")], [(1.0, 1.0, True, [])], 0)
@example([(1, "P", b"aaa"), (2, "F", b"bbb")], [(0.5, 1.0, True, [])], 0)
@example([(7200 * 10**9, "F", b"a"), (7201 * 10**9, "F", b"b")], [(0.5, 1.0, True, [])], 2)
def test_each_line_is_told_once_however_the_streams_end(records, plan, hours):
    assert read_over_streams(LogEndpoint(records, hours), plan) == [last_frame(line) for line in written_lines(records)]


@given(log_records(out_of_order=True), breaks)
def test_each_line_is_told_once_also_when_times_are_out_of_order(records, plan):
    assert read_over_streams(LogEndpoint(records), plan) == [last_frame(line) for line in written_lines(records)]


@pytest.mark.parametrize("back", [2, 60, 3600])
@pytest.mark.parametrize("grown", [[6], [7], [7, 8, 9], [7, 12], [12, 20], [20, 23, 26, 29]])
def test_a_clock_that_is_set_back_loses_nothing(back, grown):
    """It is set back after the fifth line, and past where it was after some more."""
    times = [1000 * n for n in range(5000, 5005)] + [1000 * (5004 - back) + 400 * n for n in range(20)]
    times += [max(times) + 1000 * n for n in range(1, 6)]
    endpoint = LogEndpoint([(moment * 10**6, "F", b"%d" % n) for n, moment in enumerate(times)])
    plan = [(count / 30, 1.0, True, []) for count in grown]
    assert read_over_streams(endpoint, plan) == [str(n) for n in range(30)]


def test_lines_that_the_kubelet_has_put_away_do_not_hide_newer_ones():
    records = [(10**9 + n, "F", b"%d" % n) for n in range(10)]
    transcript = LogReader()
    first = read_lines(
        transcript,
        LogEndpoint(records[:6]).respond(None, 6) + LogEndpoint.format_timestamp(LogEndpoint([]), 10**9 + 6) + b"6 be",
    )
    rotated = LogEndpoint([*records[4:5], *records[7:]])
    second = read_lines(transcript, rotated.respond(transcript.since, 99))
    assert join_lines(first + second) == ["0", "1", "2", "3", "4", "5", "6 be", "7", "8", "9"]


class UnframedStream(FakeStream):
    """An answer without a length: its headers were cut, or a proxy of HTTP/1.0 gave it."""

    chunked, headers = False, {}


def test_of_an_answer_without_a_length_only_the_repetition_is_believed():
    transcript, answer = LogReader(), b"2026-01-01T00:00:01.000000000Z one\n2026-01-01T00:00:02.000000000Z two"
    for sent, wanted in ((b"", []), (answer[:40], ["one"]), (answer, [])):
        lines = []
        with pytest.raises(ClusterUnreachable):
            for batch in transcript.read(UnframedStream(sent)):
                lines += batch
        assert join_lines(lines) == wanted[: sent.count(b"\n")]
    assert join_lines([*itertools.chain(*transcript.read(UnframedStream(answer))), *transcript.flush()]) == ["two"]


# -- long lines -------------------------------------------------------------------------------------------------------


@given(
    st.sampled_from([b"x", "\u00e9".encode(), "\u2588".encode(), "\U0001f600".encode(), b"\x80", b"\xe2\x88"]),
    st.integers(0, 5),
    st.sampled_from([LONGEST - 1, LONGEST, LONGEST + 1, 2 * LONGEST + 3]),
    st.floats(0, 1),
    st.booleans(),
)
def test_a_long_line_comes_in_pieces_once(letter, before, size, part, clean):
    line = b"-" * before + letter * (size // len(letter))
    endpoint = LogEndpoint([(1, "F", b"first"), (2, "F", line), (3, "F", b"last")])
    assert read_over_streams(endpoint, [(1.0, part, clean, [])]) == ["first", line.decode(errors="replace"), "last"]


def test_a_line_of_ten_megabytes_takes_bounded_memory(evidence):
    size = 10 << 20
    line = b"2026-01-01T00:00:01.000000000Z " + b"0123456789abcde\xff" * (size // 16) + b"\n"
    half, transcript, told, longest = line[: len(line) // 2], LogReader(), 0, 0
    tracemalloc.start()
    for sent in (half, line):
        for batch in transcript.read(FakeStream(sent)):
            told += sum(len(one.text) for one in batch)
            longest = max([longest, *(len(one.text) for one in batch)])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    fault = "a line of 10 MiB, its stream ended in the middle"
    evidence("logs", fault=fault, lines=1, lost=int(told < size), repeated=int(told > size))
    assert (told, longest) == (size, LONGEST)
    assert peak < 8 * LONGEST


def test_a_progress_bar_of_many_frames_is_one_line(evidence):
    frames = [b"%6d/100000 %s" % (n, b"#" * 60) for n in range(100_000)]
    data = b"2026-01-01T00:00:01.000000000Z " + b"\r".join(frames) + b"\n"
    transcript, kept, drawn = LogReader(), [], 0
    tail = Tail(20)
    tracemalloc.start()
    for end in (len(data) // 3, len(data)):
        for batch in transcript.read(FakeStream(memoryview(data)[:end].tobytes())):
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


def test_a_hostile_log_takes_time_by_its_length_only():
    """Small chunks, carriage returns only, and no newline ever."""
    data = b"2026-01-01T00:00:01.000000000Z " + b"a" * (LONGEST - 1) + b"\r" * 100_000
    transcript = LogReader()
    lines = read_lines(transcript, *(data[at : at + 2] for at in range(0, len(data), 2)))
    assert join_lines(lines + transcript.flush()) == ["a" * (LONGEST - 1)]


@pytest.mark.parametrize("text", ["x" * 5000, "y" * (LONGEST + 10)])
def test_of_a_very_long_line_the_tail_keeps_the_beginning(text):
    tail = Tail(2)
    endpoint = LogEndpoint([(1, "F", b"one"), (2, "F", text.encode()), (3, "F", b"two")])
    transcript = LogReader()
    for batch in transcript.read(FakeStream(endpoint.respond(None, 3))):
        tail.extend(batch)
    assert tail.lines == (text[:2000] + "\u2026", "two")
