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
* When the kubelet goes away, the API server ends the response as if the log had ended, even in the middle of a line. An
  error of the kubelet itself ("too many open files") is text at the end of the response, without a time.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainjob.client.api_errors import from_network
from trainjob.client.log_position import Moment, Position, Standing
from trainjob.errors import ClusterUnreachable

_READ = 1 << 16  # bytes read from the network at once
_LONGEST = 1 << 18  # bytes; a longer line is returned in pieces
_LONGEST_KEPT = 2000  # characters of a line that is kept as evidence
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
_STAMP_BEGUN = re.compile(rb"[0-9T:.Z+-]{0,35}")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, one frame of a progress bar, or one piece of a very long line.

    Attributes:
        source: replicated job and rank, such as `node-0`, with the container's name if the pod has several containers.
        text: the line without its line end.
        frame: whether this is a state of a line that was overwritten with a carriage return, as progress bars do.
            Frames show progress and need not be kept.
        goes_on: whether the next item of this source continues the same line.
        command: command that prints the log of this line; empty if it is unknown.
    """

    source: str
    text: str
    frame: bool = False
    goes_on: bool = False
    command: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"[{self.source}] {self.text}{'…' if self.goes_on else ''}"


class Tail:
    """The last lines of a log, in bounded memory.

    Of a very long line it keeps the first 2000 characters.
    """

    def __init__(self, most: int) -> None:
        """Create an empty tail.

        Args:
            most: number of lines to keep.
        """
        self._lines: deque[str] = deque(maxlen=most)
        self._goes_on = False

    def extend(self, lines: list[LogLine]) -> None:
        """Add lines; frames are left out."""
        for line in lines:
            if not line.frame and not self._goes_on:
                cut = line.goes_on or len(line.text) > _LONGEST_KEPT
                self._lines.append(line.text[:_LONGEST_KEPT] + "…" if cut else line.text)
            self._goes_on = line.goes_on

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines, oldest first."""
        return tuple(self._lines)


class Transcript:
    """Reader of one container's log that returns every line once, in bounded memory.

    It reads one stream after the other. Each stream continues where the previous one ended, at any byte. A line is
    returned when its end has arrived. After the end of the log, [rest][] returns a line without an end.
    """

    def __init__(self, source: str = "", command: str = "") -> None:
        """Create a transcript that has read nothing yet.

        Args:
            source: name of the container in each [LogLine][].
            command: command that prints the container's log, for each [LogLine][].
        """
        self._source, self._command, self._position = source, command, Position()
        self._unfinished, self._stamped = False, True  # whether a line was begun; whether it has a time
        self._rest, self._told = bytearray(), 0  # of that line: the bytes not returned yet; the number returned
        self._returns = 0  # carriage returns at its end: if bytes follow them, the line is a frame
        self._again = 0  # bytes of the line that this stream repeats
        self._inside = self._passing = False  # in the middle of a line; of a line returned before
        self._fragment, self._first = b"", False  # part of a time; whether the first line is yet to come
        self._trouble = b""
        self._clock, self._second = (b"", b""), 0

    @property
    def since(self) -> datetime | None:
        """Time at which the next stream has to begin; None for the beginning of the log."""
        return self._position.since

    @property
    def jumped(self) -> bool:
        """Whether the stream repeated nothing of what was returned before.

        In that case lines were lost in a rotated file, or the stream is the log of another run.
        """
        return self._position.jumped

    @property
    def first(self) -> Moment | None:
        """Time of the log's first line; None before that line was read.

        No other log of the container starts with the same time.
        """
        return self._position.first

    def read(self, stream: Any) -> Iterator[list[LogLine]]:
        """Yield the new lines of a stream as they arrive, many lines at once.

        An empty list means that a part of the stream arrived without a new line.

        Args:
            stream: an open urllib3 response.

        Raises:
            ClusterUnreachable: the stream broke; open the next one.
        """
        import urllib3

        known, came = self._extent, False
        self._position.resume()
        self._inside, self._fragment, self._first = False, b"", self._position.resuming
        try:
            for chunk in stream.stream(amt=_READ, decode_content=False):
                came = True
                yield self._take(chunk)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise _broken(error) from error
        # A response may state neither its length nor its end, for example if its headers were cut. Such a response
        # counts as complete only if it repeated known lines and had nothing new.
        if not (stream.chunked or "Content-Length" in stream.headers) and (self._extent != known or not came):
            raise _broken(ConnectionError("the answer may have been cut"))

    @property
    def _extent(self) -> tuple[int, int]:
        return self._position.lines, self._told + len(self._rest) + self._returns

    def rest(self) -> list[LogLine]:
        """Return the last line if no newline ends it; call this after the log's end."""
        told: list[LogLine] = []
        if self._unfinished:
            self._finish(told)
        return told

    def drop(self) -> None:
        """Discard the unfinished line, because it belongs to another log."""
        self._unfinished = False
        self._rest.clear()

    def _take(self, chunk: bytes) -> list[LogLine]:
        told: list[LogLine] = []
        if self._inside:
            chunk = self._to_its_end(chunk, told)
        if self._inside:
            return told
        *lines, tail = (self._fragment + chunk).split(b"\n")
        for line in lines:
            self._take_line(line, told)
        self._fragment = tail if _STAMP_BEGUN.fullmatch(tail) else b""
        if not self._fragment and tail:
            content = self._begin(tail, told)
            self._inside, self._passing = True, content is None
            if content:
                self._go_on(content, told)
        return told

    def _to_its_end(self, chunk: bytes, told: list[LogLine]) -> bytes:
        """Add bytes to the line in which the previous chunk ended, and return those after it."""
        content, newline, behind = chunk.partition(b"\n")
        if not self._passing:
            self._go_on(content, told)
        if newline:
            self._inside = False
            if not self._passing:
                self._end(told)
        return behind

    def _take_line(self, line: bytes, told: list[LogLine]) -> None:
        content = self._begin(line, told)
        if content is None:
            return
        if self._stamped and not self._again and len(content) <= _LONGEST and b"\r" not in content:  # nearly all lines
            told.append(LogLine(self._source, content.decode(errors="replace"), False, False, self._command))
            self._position.end()
            self._unfinished = False
        else:
            self._go_on(content, told)
            self._end(told)

    def _begin(self, line: bytes, told: list[LogLine]) -> bytes | None:
        """Return a line's bytes without its time, or None if the line was returned before."""
        first, self._first = self._first, False
        stamp = self._stamp(line)
        if stamp is None:
            if first:  # the rest of a line that began before the requested second
                return None
        else:
            moment, line = stamp
            standing = self._position.begin(moment)
            if standing is Standing.TOLD:
                return None
            if standing is Standing.BEGUN:
                self._rest.clear()
                self._returns, self._again = 0, self._told
                return line
        if self._unfinished:  # the log no longer has the rest of that line
            self._finish(told)
        self._unfinished, self._stamped, self._again = True, stamp is not None, 0
        return line

    def _go_on(self, content: bytes, told: list[LogLine]) -> None:
        """Add bytes to the current line; a frame is returned when the next one begins."""
        if self._again:
            cut = min(self._again, len(content))
            self._again -= cut
            content = content[cut:]
        if self._returns or b"\r" in content:
            content = self._draw(content, told)
        self._rest += content
        while len(self._rest) > _LONGEST:
            cut = _character_before(self._rest, _LONGEST)
            told.append(self._line(self._rest[:cut], goes_on=True))
            self._drop(cut)

    def _draw(self, content: bytes, told: list[LogLine]) -> bytes:
        """Append the complete frames to the list, and return the remaining bytes.

        A frame is complete when other bytes follow it. The remaining bytes may be the last frame.
        """
        body, last = content.rstrip(b"\r"), b""
        if body:
            *frames, last = (b"\r" * bool(self._returns) + body).split(b"\r")
            if frames:
                frames[0] = bytes(self._rest) + frames[0]
                told += [self._line(one, frame=True) for one in frames if one]
                self._told += len(self._rest) + self._returns + len(body) - len(last)
                self._rest.clear()
                self._returns = 0
        self._returns += len(content) - len(body)
        if not (self._rest or last):
            self._told += self._returns
            self._returns = 0
        return last

    def _drop(self, count: int) -> None:
        del self._rest[:count]
        self._told += count

    def _end(self, told: list[LogLine]) -> None:
        if self._stamped:
            self._position.end()
        self._finish(told)

    def _finish(self, told: list[LogLine]) -> None:
        text = bytes(self._rest)
        self._rest.clear()
        self._unfinished, self._told, self._returns = False, 0, 0
        if not self._stamped:
            if text == self._trouble:  # the kubelet's error text, which each stream repeats
                return
            self._trouble = text
        told.append(self._line(text))

    def _line(self, text: bytes | bytearray, *, frame: bool = False, goes_on: bool = False) -> LogLine:
        return LogLine(self._source, text.decode(errors="replace"), frame, goes_on, self._command)

    def _stamp(self, line: bytes) -> tuple[Moment, bytes] | None:
        found = _STAMP.match(line)
        if found is None:
            return None
        day, fraction, zone = found.groups(b"")
        if (day, zone) != self._clock:
            try:
                moment = datetime.fromisoformat(day.decode() + zone.decode().replace("Z", "+00:00"))
            except ValueError:
                return None
            self._clock, self._second = (day, zone), int(moment.timestamp())
        return (self._second, fraction.ljust(9, b"0")), line[found.end() :]


def _broken(error: Exception) -> ClusterUnreachable:
    return from_network(error, server="the API server", doing="read pods/log")


def _character_before(text: bytearray, cut: int) -> int:
    """Return the last place up to `cut` that is not within a UTF-8 character."""
    for place in range(cut, cut - 4, -1):
        if text[place] & 0xC0 != 0x80:
            return place
    return cut  # the text is not UTF-8


def byte_length(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
