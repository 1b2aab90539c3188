"""Log endpoint of a kubelet for unit tests: generated logs, and streams that end anywhere."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import urllib3
from hypothesis import strategies as st

from trainjob.client import LogLine
from trainjob.client.log_lines import LoggedContainer
from trainjob.client.log_reader import LogReader
from trainjob.errors import ClusterUnreachable

Record = tuple[int, str, bytes]

CONTAINER = LoggedContainer("node-0", "team", "tune-node-0-0-x", "7f8a", "node")
EPOCH = datetime(2026, 1, 1, tzinfo=timezone.utc)


class FakeStream:
    """Response of urllib3 that streams these chunks; `broken` resets the connection then."""

    chunked = True

    def __init__(self, *chunks: bytes, broken: bool = False) -> None:
        self.chunks, self.is_broken = chunks, broken

    def stream(self, amt: int, decode_content: bool) -> Iterator[bytes]:
        for chunk in self.chunks:
            yield from (chunk[at : at + amt] for at in range(0, len(chunk), amt))
        if self.is_broken:
            raise urllib3.exceptions.ProtocolError("reset")


class LogEndpoint:
    """Log endpoint of the kubelet for records of a container runtime.

    It behaves as k8s.io/cri-client 0.36 `pkg/logs/logs.go`. A record is (time in nanoseconds, "P" or "F",
    bytes). `hours` is the node's offset from UTC.
    """

    def __init__(self, records: Sequence[Record], hours: int = 0) -> None:
        self.records, self.hours, self.zone = records, hours, timezone(timedelta(hours=hours))

    def respond(self, since: datetime | None, count: int) -> bytes:
        """Return the response when the runtime has written the first `count` records."""
        sent: list[bytes] = []
        new_line = True
        earliest = -1 if since is None else round((since - EPOCH).total_seconds()) * 10**9
        for moment, tag, text in self.records[:count]:
            if moment >= earliest:
                sent += [self.format_timestamp(moment)] * new_line + [text] + [b"\n"] * (tag == "F")
            new_line = tag == "F" or not text
        return b"".join(sent)

    def respond_to_tail(self) -> bytes:
        """Return the response to `tailLines=1`: the last record of the whole log."""
        return LogEndpoint(self.records[-1:], self.hours).respond(None, 1)

    def format_timestamp(self, moment: int) -> bytes:
        whole = (EPOCH + timedelta(seconds=moment // 10**9)).astimezone(self.zone)
        zone = whole.strftime("%z")
        shown = "Z" if zone == "+0000" else f"{zone[:3]}:{zone[3:]}"
        return f"{whole:%Y-%m-%dT%H:%M:%S}.{moment % 10**9:09d}{shown} ".encode()


def last_frame(line: bytes) -> str:
    """Return the text of a line that a terminal shows at its end."""
    frames = [frame for frame in line.split(b"\r") if frame]
    return (frames[-1] if frames else b"").decode(errors="replace")


def join_lines(lines: Iterable[LogLine]) -> list[str]:
    """Return the texts of whole lines, joined from their pieces, without frames."""
    texts: list[str] = []
    held = ""
    for line in lines:
        held += line.text
        if not line.continued:
            texts += [] if line.frame else [held]
            held = ""
    assert not held
    return texts


def read_lines(reader: LogReader, *chunks: bytes, broken: bool = False, **options: Any) -> list[LogLine]:
    lines: list[LogLine] = []
    try:
        for batch in reader.read(FakeStream(*chunks, broken=broken), **options):
            lines += batch
    except ClusterUnreachable:
        assert broken
    return lines


def split_at(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


TIMESTAMP = b"2026-01-01T00:00:01.000000000Z "
moments = st.sampled_from([0, 0, 0, 1, 1000, 10**8, 999_999_999, 10**9, 3 * 10**9])
contents = st.one_of(
    st.binary(max_size=8).map(lambda text: text.replace(b"\n", b"")),
    st.text("ab\u00e9\u2588\U0001f600", max_size=6).map(str.encode),
    st.lists(st.sampled_from([b"\r", b"\r", b"10%", TIMESTAMP]), max_size=6).map(b"".join),
)


@st.composite
def log_records(draw: Any, out_of_order: bool = False) -> list[Record]:
    """Generate the records of a log, in which each line is one or several records.

    With `out_of_order`, lines may be up to a second older than earlier lines. No record except the first of a line
    starts with a time, because a stream that begins there could not be distinguished from a stream with a new line.
    """
    records: list[Record] = []
    newest = 0
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
        records[-1] = (records[-1][0], "P", records[-1][2])  # no newline at the end
    return records


def written_lines(records: Sequence[Record]) -> list[bytes]:
    """Return the lines as the process wrote them."""
    text = b"".join(text + b"\n" * (tag == "F") for _, tag, text in records)
    *lines, rest = text.split(b"\n")
    return lines + [rest] * bool(rest)
