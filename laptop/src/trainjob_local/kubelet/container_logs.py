"""Container logs, stored as container runtimes do and read as the kubelet serves them.

Each line is one record, `TIMESTAMP stdout TAG TEXT`, in the CRI log format of containerd and CRI-O. The tag is `F` for
the end of a line and `P` for a part of a line. Output is written to the file immediately, as a part if it does not end
in a newline. So the frames of a progress bar, which end in a carriage return or in nothing, reach a reader while they
are shown. containerd holds them back until a newline or 16 KiB; a reader gets the same bytes from both.

Source of the reading rules: Kubernetes 1.36, k8s.io/cri-client `pkg/logs/logs.go` and `tail.go`. "Since" selects
records, not lines: if a line begins before that time, its remaining records are returned first, without a time. "Tail"
counts records, too: the last record of a line is returned as a line, with its own time.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import BinaryIO

from trainjob_local.objects import utc_now

__all__ = ["ContainerLog", "LogOptions", "format_records", "format_since"]

_BLOCK = 1 << 20  # bytes read at once
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(\.\d+)?(Z|z|[+-]\d\d:\d\d)")


def format_records(output: bytes, moment: datetime) -> bytes:
    """Format output as log records of this time (UTC)."""
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()
    *lines, rest = output.split(b"\n")
    full = b"".join(b"%s stdout F %s\n" % (stamp, line) for line in lines)
    return full + b"%s stdout P %s\n" % (stamp, rest) if rest else full


def format_since(since_time: str, since_seconds: int | None, now: datetime) -> str:
    """Convert the start of a log to a text that is comparable with the time stamps of records.

    Args:
        since_time: RFC 3339 time, or empty.
        since_seconds: seconds before `now`; takes precedence over `since_time`.
        now: the current time (UTC).

    Returns:
        The time as text (UTC); empty to read from the start.

    Raises:
        ValueError: `since_time` is not an RFC 3339 time.
    """
    if since_seconds is not None:
        return (now - timedelta(seconds=since_seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    if not since_time:
        return ""
    found = _TIME.fullmatch(since_time)
    if found is None:
        raise ValueError(f"{since_time!r} is not an RFC 3339 time")
    zone = found[4].upper().replace("Z", "+00:00")
    moment = datetime.fromisoformat(f"{found[1]}T{found[2]}{zone}").astimezone(timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + (found[3] or "")


@dataclass(frozen=True)
class LogOptions:
    """The query parameters of a log request (core/v1 PodLogOptions).

    Attributes:
        follow: whether to continue until the container has ended.
        tail: number of records from the end; None for all. A line has several records if it was written in parts.
        since: time of the first record to return, as `format_since` formats it; empty for all.
        limit: maximum number of bytes; None for no limit.
        timestamps: whether each line starts with the time of its first part.
    """

    follow: bool = False
    tail: int | None = None
    since: str = ""
    limit: int | None = None
    timestamps: bool = False


class ContainerLog:
    """The log of one run of a container, for one writer and any number of readers.

    Args:
        path: the log file.
        ended: whether the log is complete, such as a log of an earlier kubelet.
    """

    def __init__(self, path: Path, *, ended: bool = False) -> None:
        self.path = path
        self._ended = ended
        self._changed = threading.Condition()
        self._writes = 0
        self._file: BinaryIO | None = None
        if not ended:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)

    def write(self, output: bytes) -> None:
        """Append output; every reader that follows the log receives it immediately."""
        if self._file is None:
            raise ValueError(f"{self.path}: this container has ended")
        self._file.write(format_records(output, utc_now()))
        with self._changed:
            self._writes += 1
            self._changed.notify_all()

    def close(self) -> None:
        """Mark the log as complete because the container has ended."""
        if self._file is not None:
            self._file.close()
            self._file = None
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def read_tail(self, *, lines: int, size: int) -> str:
        """Return the last lines, at most the last `size` bytes of them (for termination messages)."""
        return b"".join(self.read(LogOptions(tail=lines)))[-size:].decode(errors="replace")

    def read(self, options: LogOptions, cancelled: threading.Event | None = None) -> Iterator[bytes]:
        """Yield the output of the process, selected and with timestamps as the options request.

        Args:
            options: the query parameters.
            cancelled: set when the reader has disconnected; a reader that follows then ends within half a second.
        """
        left = options.limit
        new_line = True
        for record in self._read_records(options, cancelled or threading.Event()):
            stamp, _, tag, text = record.split(b" ", 3)
            part = (stamp + b" " if options.timestamps and new_line else b"") + text + (b"\n" if tag == b"F" else b"")
            new_line = tag == b"F"
            if stamp.decode() < options.since:
                continue
            part = part if left is None else part[:left]
            left = None if left is None else left - len(part)
            if part:
                yield part
            if left == 0:
                return

    def _read_records(self, options: LogOptions, cancelled: threading.Event) -> Iterator[bytes]:
        if not self.path.exists():  # the container never started
            return
        with self.path.open("rb") as written:
            if options.tail is None:
                yield from _parse_records(written)
            elif options.tail:
                yield from deque(_parse_records(written), maxlen=options.tail)
            else:
                written.seek(0, os.SEEK_END)
            if options.follow:
                yield from self._follow_records(written, cancelled)

    def _follow_records(self, written: BinaryIO, cancelled: threading.Event) -> Iterator[bytes]:
        while not cancelled.is_set():
            with self._changed:  # counted before reading: output written meanwhile ends the wait immediately
                seen, ended = self._writes, self._ended
            yield from _parse_records(written)
            if ended:
                return
            with self._changed:
                self._changed.wait_for(partial(self._has_changed, seen), timeout=0.5)

    def _has_changed(self, seen: int) -> bool:
        return self._ended or self._writes != seen


def _parse_records(written: BinaryIO) -> Iterator[bytes]:
    """Yield the complete records from the current position on, reading block by block."""
    held = b""
    while block := written.read(_BLOCK):
        *whole, held = (held + block).split(b"\n")
        yield from whole
    written.seek(-len(held), os.SEEK_CUR)
