"""Parser of container logs that arrive in streams which may end anywhere.

It returns lines, frames of progress bars and pieces of long lines. These facts about the log endpoint are from
Kubernetes 1.36 (`pkg/kubelet/kubelet_pods.go`, k8s.io/cri-client `pkg/logs/logs.go`):

* A container runtime writes records of up to 16 KiB. It writes a longer line as several records, each with its time.
  The endpoint joins them: a line of any length has one time, that of its first record. Carriage returns are ordinary
  bytes. If a log ends without a newline, the response does, too.
* The time has the node's own offset from UTC, and always nine digits of a fraction.
* `sinceTime` selects records, not lines. If a line began earlier, the rest of it comes first, without a time.
* A line of standard error may come between two records of a line of standard output. The endpoint then appends it to
  the first record, and the rest of the standard output follows as a line of its own. No reader can separate them
  afterwards.
* The endpoint reads the newest file only, and the kubelet starts a new file every 10 MiB. Lines are lost if their file
  is rotated before they were read.
* When the kubelet goes away, the API server ends the response as if the log had ended, even in the middle of a line
  (observed with 1.36.3, with and without `follow`). [trainjob.client.log_end][] has the proof of a log's end. An error
  of the kubelet itself ("too many open files") is text at the end of the response, without a time.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

from trainjob.client.api_errors import error_from_network
from trainjob.client.log_end import LastLine
from trainjob.client.log_lines import LoggedContainer, LogLine, LogTime, Tail
from trainjob.client.log_resume import LineStatus, ResumePoint
from trainjob.client.progress_bars import ROW_UP, BarRows, count_rows
from trainjob.errors import ClusterUnreachable
from trainjob.status.watchdog import STEPS_PREFIX

_CHUNK_BYTES = 1 << 16  # read from the network at once
_TAIL_LINES = 20
_MAX_LINE_BYTES = 1 << 18  # a longer line is returned in pieces
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
# Without ranges of characters, so that one search finds a thousand lines in 0.2 ms.
_PLAIN_LINE = re.compile(rb"^(.{19}\.\d{9})(Z|[+-].{5}) (.*)$", re.MULTILINE)
_PARTIAL_STAMP = re.compile(rb"[0-9T:.Z+-]{0,35}")
_STEPS_PREFIX = STEPS_PREFIX.encode()
# What ends a frame: the cursor goes to the begin of its row, or to a row above.
_SEPARATORS = re.compile(rb"((?:\r|\x1b\[\d{0,3}A)+)")
# At the end of a chunk, read backwards: the begin of an escape sequence, and separators before it.
_END_OF_CHUNK = re.compile(rb"((?:\d{0,3}\[)?\x1b)?((?:\r|A\d{0,3}\[\x1b)*)")


class LogReader:
    """Reader of one container's log that returns every line once, in bounded memory.

    It reads one stream after the other. Each stream continues where the previous one ended, at any byte. A line is
    returned when its end has arrived. After the end of the log, [flush][] returns the last line if it has
    no end.

    Attributes:
        tail: the last 20 of the lines; the caller adds them.
    """

    def __init__(self, container: LoggedContainer | None = None, *, written_until: LogTime | None = None) -> None:
        """Create a reader that has read nothing yet.

        Args:
            container: the container, for each [LogLine][] and for notices; None if they are not wanted.
            written_until: time before which an earlier process has written the lines; None if it has written nothing.
        """
        self._container, self._source = container, container.source if container else ""
        self._written_until = written_until
        self.tail = Tail(_TAIL_LINES)
        self._resume = ResumePoint()
        # The current line, which may continue in the next stream.
        self._unfinished = False
        self._time: LogTime | None = None
        self._pending, self._returned_bytes = bytearray(), 0  # bytes not returned yet; number of bytes returned
        self._separator_bytes = 0  # bytes of separators at its end: if other bytes follow them, the line is a frame
        self._partial_escape = b""  # what may be the begin of another one
        self._rows_up, self._last_rows_up = 0, 0  # rows by which it moves the cursor up; those of the last separators
        self._has_frames = False
        self._bytes_to_skip = 0  # bytes of the line that this stream repeats
        self._bars = BarRows()
        # The state of the current stream.
        self._in_line = False  # whether the last chunk ended within a line
        self._skips_line = False  # whether that line was returned before
        self._partial_stamp = b""  # part of a time at the end of the last chunk
        self._expects_first_line = False  # whether the first line of a resumed stream has not arrived yet
        self._known_until: LogTime | None = None  # newest time before this stream; None after its first new line
        self._last_error_text = b""
        self._last_line = LastLine()
        self._cached_stamp, self._cached_second = (b"", b""), 0  # of the last parsed time, because parsing is slow

    @property
    def since(self) -> datetime | None:
        """Time at which the next stream has to begin; None for the beginning of the log."""
        return self._resume.since

    @property
    def first(self) -> LogTime | None:
        """Time of the log's first line; None before that line was read."""
        return self._resume.first

    @property
    def newest(self) -> LogTime | None:
        """Newest time of a line; None before the first line was read."""
        return self._resume.newest

    def read(
        self,
        stream: Any,
        *,
        may_have_gap: bool = False,
        known_logs: Collection[LogTime] = (),
        is_gap_reported: bool = False,
    ) -> Iterator[list[LogLine]]:
        """Yield the new lines of a stream as they arrive, many lines at once.

        An empty list means that a part of the stream arrived without a new line.

        Args:
            stream: an open urllib3 response.
            may_have_gap: whether the stream is of the same log, even if it repeats no known line. A notice then takes
                the place of the lines that were lost.
            known_logs: times of the first lines of logs that other readers have begun.
            is_gap_reported: whether the caller has reported the lines that were lost, so that no notice follows.

        Raises:
            ClusterUnreachable: the stream broke; open the next one.
            OtherLog: the stream repeats no known line, or it is a known log; nothing of it was read.
        """
        import urllib3

        extent_before, any_bytes = self.extent, False
        self._resume.begin_stream(may_have_gap=may_have_gap, known_logs=known_logs)
        self._last_line.begin_stream()
        self._known_until = None if is_gap_reported else self.newest
        self._in_line, self._partial_stamp, self._bytes_to_skip = False, b"", 0
        self._expects_first_line = self._resume.is_resuming
        try:
            for chunk in stream.stream(amt=_CHUNK_BYTES, decode_content=False):
                any_bytes = True
                lines = self._read_chunk(chunk)
                self._last_line.add(chunk)
                yield lines
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _stream_error(error) from error
        # A response may state neither its length nor its end, for example if its headers were cut. Such a response
        # counts as complete only if it repeated known lines and had nothing new.
        if not (stream.chunked or "Content-Length" in stream.headers) and (
            self.extent != extent_before or not any_bytes
        ):
            raise _stream_error(ConnectionError("the response may be incomplete"))
        self._resume.end_stream()

    def has_read_to(self, last_line: LastLine, *, nothing_new: bool) -> bool:
        """Return whether everything up to the log's last line was read.

        Args:
            last_line: last line of the log, from a separate request.
            nothing_new: whether the last stream had no line that was not known before. Only then a line of several
                records, and an empty log, count.
        """
        received = self._last_line
        if not received:
            return nothing_new and not last_line and self.newest is None
        if self._unfinished and self._time is not None and received.has_end:
            return False  # its line was taken for a known one, because lines before it have gone with a rotated file
        return received.equals(last_line) or (nothing_new and received.ends_with_text_of(last_line))

    def began_after(self, last_line: LastLine) -> bool:
        """Return whether the log began after this line, so that the line is from another log."""
        stamp = self._parse_stamp(last_line.content)
        return stamp is not None and self.first is not None and stamp[0] < self.first

    def has_read_past(self, last_line: LastLine) -> bool:
        """Return whether a line was read that is newer than this one."""
        stamp = self._parse_stamp(last_line.content)
        return stamp is not None and self.newest is not None and self.newest > stamp[0]

    @property
    def extent(self) -> tuple[int, int]:
        """Numbers of complete lines and of bytes after them; they change with each byte."""
        unreturned = len(self._pending) + self._separator_bytes + len(self._partial_escape)
        return self._resume.lines, self._returned_bytes + unreturned

    def flush(self) -> list[LogLine]:
        """Return the lines that are complete only because the log has ended."""
        output: list[LogLine] = []
        if self._unfinished:
            self._complete_line(output, is_last=True)
        output += self._bars.release()
        return output

    def _read_chunk(self, chunk: bytes) -> list[LogLine]:
        output: list[LogLine] = []
        if self._in_line:
            chunk = self._continue_line(chunk, output)
        if self._in_line:
            return output
        text, newline, tail = (self._partial_stamp + chunk).rpartition(b"\n")
        if newline and not self._read_plain_lines(text, output):
            for line in text.split(b"\n"):
                self._read_line(line, output)
        self._partial_stamp = tail if _PARTIAL_STAMP.fullmatch(tail) else b""
        if not self._partial_stamp and tail:
            content = self._begin_line(tail, output)
            self._in_line, self._skips_line = True, content is None
            if content:
                self._add_bytes(content, output)
        return output

    def _continue_line(self, chunk: bytes, output: list[LogLine]) -> bytes:
        """Add bytes to the line in which the previous chunk ended, and return the bytes after it."""
        content, newline, remaining = chunk.partition(b"\n")
        if not self._skips_line:
            self._add_bytes(content, output)
        if newline:
            self._in_line = False
            if not self._skips_line:
                self._end_line(output)
        return remaining

    def _read_plain_lines(self, text: bytes, output: list[LogLine]) -> bool:
        """Read whole new lines in the order of their times; return False for any other text.

        This is the fast path for nearly all lines of a log that arrives in large chunks.
        """
        resume, newest = self._resume, self._resume.newest
        if self._unfinished or resume.is_resuming or newest is None or b"\r" in text or len(text) > _MAX_LINE_BYTES:
            return False
        if not self._bars.is_empty or (b"\x1b[" in text and ROW_UP.search(text)) or _STEPS_PREFIX in text:
            return False
        found = _PLAIN_LINE.findall(text)
        stamps, zones = [stamp for stamp, _, _ in found], {zone for _, zone, _ in found}
        if len(found) != text.count(b"\n") + 1 or len(zones) > 1 or stamps != sorted(stamps):
            return False
        times: list[LogTime] = []
        bounds = [0]  # of the lines of each second
        while (first := bounds[-1]) < len(stamps):
            if (parsed := self._parse_stamp(b"%s%s " % (stamps[first], *zones))) is None:
                return False
            second = parsed[0][0]
            bounds.append(bisect_left(stamps, stamps[first][:19] + b"/", first))  # b"/" is the successor of b"."
            times += [(second, stamp[20:]) for stamp in stamps[first : bounds[-1]]]
        if times[0] < newest:
            return False
        for first, end in pairwise(bounds):
            of_newest_time = end - bisect_left(stamps, stamps[end - 1], first, end)
            resume.add_lines(end - first, times[end - 1], of_newest_time=of_newest_time)
        source, container = self._source, self._container
        lines = [
            LogLine(source, line[2].decode("utf-8", "replace"), False, False, container, time)
            for time, line in zip(times, found, strict=True)
        ]
        if self._written_until is not None:
            for line, time in zip(lines, times, strict=True):
                line.is_written = time < self._written_until
        output += lines
        return True

    def _read_line(self, line: bytes, output: list[LogLine]) -> None:
        content = self._begin_line(line, output)
        if content is not None:
            self._add_bytes(content, output)
            self._end_line(output)

    def _begin_line(self, line: bytes, output: list[LogLine]) -> bytes | None:
        """Return a line's bytes without its time, or None if the line was returned before."""
        is_first, self._expects_first_line = self._expects_first_line, False
        stamp = self._parse_stamp(line)
        if stamp is None:
            if is_first:  # the rest of a line that began before the requested second
                return None
        else:
            time, line = stamp
            status = self._resume.begin_line(time)
            if status is LineStatus.KNOWN:
                return None
            if status is LineStatus.PARTIAL:
                self._forget_end()
                self._bytes_to_skip = self._returned_bytes
                return line
        if self._unfinished:  # the log no longer has the rest of that line
            self._resume.has_gap |= self._time is not None
            self._complete_line(output)
        if self._known_until and stamp is not None:
            if self._container and self._resume.has_gap:
                output += self._bars.release()
                output.append(self._container.rotated(self._known_until, stamp[0]))
            self._known_until = None
        self._unfinished, self._time, self._bytes_to_skip = True, stamp[0] if stamp else None, 0
        return line

    def _add_bytes(self, content: bytes, output: list[LogLine]) -> None:
        """Add bytes to the current line; a frame is returned when the next one begins."""
        if self._bytes_to_skip:
            cut = min(self._bytes_to_skip, len(content))
            self._bytes_to_skip -= cut
            content = content[cut:]
        if self._separator_bytes or self._partial_escape or b"\r" in content or b"\x1b" in content:
            content = self._split_frames(content, output)
        self._pending += content
        while len(self._pending) > _MAX_LINE_BYTES:
            cut = _character_boundary_before(self._pending, _MAX_LINE_BYTES)
            output += self._bars.release(frames=self._rows_up)
            output.append(self._create_line(self._pending[:cut], continued=True))
            self._discard_bytes(cut)

    def _split_frames(self, content: bytes, output: list[LogLine]) -> bytes:
        """Append the complete frames to the list, and return the remaining bytes.

        A frame is complete when other bytes follow its separators. The remaining bytes may be the last frame.
        """
        content = self._partial_escape + content
        found = _END_OF_CHUNK.match(content[::-1])
        partial, ending = (len(found[1] or b""), len(found[2])) if found else (0, 0)
        self._partial_escape = content[len(content) - partial :]
        body, separators = content[: -partial - ending or None], content[len(content) - partial - ending :][:ending]
        last = b""
        if body:
            if self._separator_bytes:
                self._end_frame(b"", self._separator_bytes, self._last_rows_up, output)
                self._separator_bytes = self._last_rows_up = 0
            frames, last = _split_at_separators(body)
            for text, separator_bytes, rows_up in frames:
                self._end_frame(text, separator_bytes, rows_up, output)
        self._separator_bytes += len(separators)
        self._last_rows_up += count_rows(separators)
        if not (self._pending or last):
            self._end_frame(b"", self._separator_bytes, self._last_rows_up, output)
            self._separator_bytes = self._last_rows_up = 0
        return last

    def _end_frame(self, text: bytes, separator_bytes: int, rows_up: int, output: list[LogLine]) -> None:
        """Return the pending bytes and this text as a frame, unless they are empty."""
        if self._pending:
            text = bytes(self._pending) + text
            self._pending.clear()
        self._rows_up += rows_up
        if text:
            output += self._bars.release(frames=self._rows_up)
            output.append(self._create_line(text, frame=True))
        self._returned_bytes += len(text) + separator_bytes
        self._has_frames |= separator_bytes > 0

    def _forget_end(self) -> None:
        """Discard the bytes of the current line that were not returned."""
        self._pending.clear()
        self._separator_bytes, self._partial_escape, self._last_rows_up = 0, b"", 0

    def _discard_bytes(self, count: int) -> None:
        del self._pending[:count]
        self._returned_bytes += count

    def _end_line(self, output: list[LogLine]) -> None:
        if self._time is not None:
            self._resume.end_line()
        self._complete_line(output)

    def _complete_line(self, output: list[LogLine], *, is_last: bool = False) -> None:
        text = bytes(self._pending) + self._partial_escape
        ends_above, rows_up = self._last_rows_up > 0, self._rows_up + self._last_rows_up
        is_redrawn = self._has_frames
        self._forget_end()
        self._unfinished, self._returned_bytes, self._rows_up, self._has_frames = False, 0, 0, False
        if self._time is None:
            if text == self._last_error_text:  # the kubelet's error text, which each stream repeats
                return
            self._last_error_text = text
        line = self._create_line(text, frame=ends_above and not is_last)
        output += self._bars.add_line(line, rows_up=rows_up, is_redrawn=is_redrawn)

    def _create_line(self, text: bytes | bytearray, *, frame: bool = False, continued: bool = False) -> LogLine:
        time = self._time
        is_written = time is not None and self._written_until is not None and time < self._written_until
        shown = text.decode(errors="replace")
        frame = frame or text.startswith(_STEPS_PREFIX)
        return LogLine(self._source, shown, frame, continued, self._container, time, is_written)

    def _parse_stamp(self, line: bytes) -> tuple[LogTime, bytes] | None:
        found = _STAMP.match(line)
        if found is None:
            return None
        day, fraction, zone = found.groups(b"")
        if (day, zone) != self._cached_stamp:
            try:
                time = datetime.fromisoformat(day.decode() + zone.decode().replace("Z", "+00:00"))
            except ValueError:
                return None
            self._cached_stamp, self._cached_second = (day, zone), int(time.timestamp())
        return (self._cached_second, fraction.ljust(9, b"0")), line[found.end() :]


def _split_at_separators(text: bytes) -> tuple[list[tuple[bytes, int, int]], bytes]:
    """Return each frame with the bytes and the rows up of its separators, and the rest."""
    if b"\x1b" not in text:  # the fast path for a single bar
        *frames, rest = text.split(b"\r")
        return [(frame, 1, 0) for frame in frames], rest
    *parts, rest = _SEPARATORS.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [(frame, len(separators), count_rows(separators)) for frame, separators in pairs], rest


def read_last_line(stream: Any) -> LastLine:
    """Return the last line of a stream.

    Args:
        stream: an open urllib3 response.

    Raises:
        ClusterUnreachable: the stream broke.
    """
    import urllib3

    last_line = LastLine()
    try:
        for chunk in stream.stream(amt=_CHUNK_BYTES, decode_content=False):
            last_line.add(chunk)
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _stream_error(error) from error
    return last_line


def _stream_error(error: Exception) -> ClusterUnreachable:
    return error_from_network(error, server="the API server", doing="read pods/log")


def _character_boundary_before(text: bytearray, cut: int) -> int:
    """Return the last index up to `cut` that is not within a UTF-8 character."""
    for index in range(cut, cut - 4, -1):
        if text[index] & 0xC0 != 0x80:  # no continuation byte of UTF-8
            return index
    return cut  # the text is not UTF-8
