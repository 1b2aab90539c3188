"""A container's log out of streams that may end anywhere: lines, frames of progress bars, pieces of long lines.

What the log endpoint gives, by Kubernetes 1.36 (`pkg/kubelet/kubelet_pods.go`, k8s.io/cri-client `pkg/logs/logs.go`):

* A container runtime writes records of up to 16 KiB, a longer line as several, each with its time. The endpoint joins
  them: a line has one time, that of its first record, however long it is. Carriage returns are bytes like others. A log
  that ends without a newline ends like that here, too.
* The time is written with the node's own offset from UTC, always with nine digits.
* `sinceTime` chooses records, not lines: the rest of a line that began before comes first, without a time.
* A line of standard error between two records of one of standard output is glued to the first; the rest of the latter
  comes as a line of its own. Nobody can tell them apart any more.
* The endpoint reads the newest file only; the kubelet begins a new one every 10 MiB. Lines that were put away before
  they were read are lost.
* When the kubelet goes away, the API server ends the answer as if the log had ended, be it in the middle of a line. The
  kubelet's own trouble ("too many open files") is text at the end of the answer, without a time.
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

_READ = 1 << 16  # bytes taken from the network at once
_LONGEST = 1 << 18  # bytes; a longer line comes in pieces
_LONGEST_KEPT = 2000  # characters of a line that is kept as evidence
_STAMP = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
_STAMP_BEGUN = re.compile(rb"[0-9T:.Z+-]{0,35}")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line, one frame of a progress bar, or a piece of a line that is too long to be held.

    Attributes:
        source: step and rank, such as `node-0` (with the container's name where a pod has several).
        text: the line without its end.
        frame: a state of a line that was overwritten with a carriage return, as progress bars do; worth reading for
            progress, not worth keeping.
        goes_on: the next of this source goes on with the same line.
        command: prints the log that the line is in; empty if it is unknown.
    """

    source: str
    text: str
    frame: bool = False
    goes_on: bool = False
    command: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        return f"[{self.source}] {self.text}{'…' if self.goes_on else ''}"


class Tail:
    """The last lines of a log, in bounded memory; of a very long line its beginning."""

    def __init__(self, most: int) -> None:
        """Nothing was added yet.

        Args:
            most: lines to keep.
        """
        self._lines: deque[str] = deque(maxlen=most)
        self._goes_on = False

    def extend(self, lines: list[LogLine]) -> None:
        """More of them; frames are left out."""
        for line in lines:
            if not line.frame and not self._goes_on:
                cut = line.goes_on or len(line.text) > _LONGEST_KEPT
                self._lines.append(line.text[:_LONGEST_KEPT] + "…" if cut else line.text)
            self._goes_on = line.goes_on

    @property
    def lines(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(self._lines)


class Transcript:
    """Reads one container's log, stream after stream: every line once, in bounded memory.

    Each stream goes on where the one before it ended, at any byte. A line is told when its end is there; what is left
    of one when the log itself has ended is told by [rest][].
    """

    def __init__(self, source: str = "", command: str = "") -> None:
        """Nothing was read yet.

        Args:
            source: what to call the container in each [LogLine][].
            command: prints the container's log; for each [LogLine][].
        """
        self._source, self._command, self._position = source, command, Position()
        self._unfinished, self._stamped = False, True  # the line that was begun, and whether it has a time
        self._rest, self._told = bytearray(), 0  # of that line: what is there and not told yet; how many bytes were
        self._returns = 0  # carriage returns behind it: with what follows, it is a frame
        self._again = 0  # bytes of the line that come again in this stream
        self._inside = self._passing = False  # in the middle of a line; of one that was told
        self._fragment, self._first = b"", False  # of a time; whether the stream's first line is to come
        self._trouble = b""
        self._clock, self._second = (b"", b""), 0

    @property
    def since(self) -> datetime | None:
        """Where the next stream is to begin; None for the log's beginning."""
        return self._position.since

    @property
    def jumped(self) -> bool:
        """Whether the stream repeats nothing of what was told: lines were put away, or it is another run's log."""
        return self._position.jumped

    @property
    def first(self) -> Moment | None:
        """When the log's first line was written, which no other log of a container shares; None before it was read."""
        return self._position.first

    def read(self, stream: Any) -> Iterator[list[LogLine]]:
        """Yield what is new in a stream (an open urllib3 response), as it comes, many lines at once.

        An empty list means that a part came that holds no new line.

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
        # Of an answer that tells neither its length nor its end, such as one that was cut in its headers, only the
        # repetition is believed to be whole.
        if not (stream.chunked or "Content-Length" in stream.headers) and (self._extent != known or not came):
            raise _broken(ConnectionError("the answer may have been cut"))

    @property
    def _extent(self) -> tuple[int, int]:
        return self._position.lines, self._told + len(self._rest) + self._returns

    def rest(self) -> list[LogLine]:
        """The line that no newline ends, when the log has ended."""
        told: list[LogLine] = []
        if self._unfinished:
            self._finish(told)
        return told

    def drop(self) -> None:
        """Forget the line that was begun: it is another log's."""
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
        """More of the line that the chunk before ended in; what comes behind it."""
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
        if self._stamped and not self._again and len(content) <= _LONGEST and b"\r" not in content:  # nearly all
            told.append(LogLine(self._source, content.decode(errors="replace"), False, False, self._command))
            self._position.end()
            self._unfinished = False
        else:
            self._go_on(content, told)
            self._end(told)

    def _begin(self, line: bytes, told: list[LogLine]) -> bytes | None:
        """A line's own bytes, without its time; None when it was told already."""
        first, self._first = self._first, False
        stamp = self._stamp(line)
        if stamp is None:
            if first:  # the rest of a line that began before the second that was asked for
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
        if self._unfinished:  # it is not there any more
            self._finish(told)
        self._unfinished, self._stamped, self._again = True, stamp is not None, 0
        return line

    def _go_on(self, content: bytes, told: list[LogLine]) -> None:
        """More of the line: frames are told when the next one begins."""
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
        """Tells the frames that something follows; what is left may be the last one."""
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
            if text == self._trouble:  # each stream ends with it
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
    """The nearest place up to there that is not within a UTF-8 character."""
    for place in range(cut, cut - 4, -1):
        if text[place] & 0xC0 != 0x80:
            return place
    return cut  # that is no UTF-8
