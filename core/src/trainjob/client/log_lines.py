"""Items of a container's log: lines, frames of progress bars, pieces of long lines, and notices of this project."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from trainjob.status.nested_fields import get_str
from trainjob.status.pods import container_statuses, rank_of, step_of

LogTime = tuple[int, bytes]
"""Time of a log line: seconds of the epoch, and nine digits of a fraction of a second."""
_MAX_TAIL_CHARACTERS = 2000  # of a line that is kept as evidence


@dataclass(slots=True)  # not frozen, which would double the time to create a line
class LogLine:
    """One line, one frame of a progress bar, or one piece of a very long line.

    Attributes:
        source: replicated job and rank, such as `node-0`, with the container's name if the pod has several containers.
        text: the line without its line end.
        frame: whether this is a state of a line that was overwritten with a carriage return, as progress bars do, or
            a line in which a watchdog reports the ranks' steps. Frames show progress and need not be kept.
        continued: whether the next item of this source continues the same line.
        log: the container that has written the line; None if it is unknown or if the line is about all containers.
        time: time of the line; None if the line has none.
        is_written: whether an earlier process has written the line. It is read again because of the progress and the
            results in it.
    """

    source: str
    text: str
    frame: bool = False
    continued: bool = False
    log: LoggedContainer | None = field(default=None, compare=False, repr=False)
    time: LogTime | None = field(default=None, compare=False, repr=False)
    is_written: bool = field(default=False, compare=False)

    @property
    def container(self) -> str:
        """Name of the container; empty if it is unknown or if the line is about all containers."""
        return self.log.container if self.log else ""

    @property
    def command(self) -> str:
        """Command that prints the log of this line; empty if it is unknown."""
        return self.log.command() if self.log else ""

    def __str__(self) -> str:
        return f"[{self.source}] {self.text}{'…' if self.continued else ''}"


class LogNotice(LogLine):
    """Line of this project about the log of a container, for example that output is missing.

    Its source is empty if it is about all containers of a TrainJob.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return f"[{self.source}] {self.text}" if self.source else self.text


@dataclass(frozen=True, slots=True)
class LoggedContainer:
    """A container whose log is read.

    Attributes:
        source: source of its lines, as in [LogLine][].
        namespace: namespace of the pod.
        pod: name of the pod.
        uid: uid of the pod.
        container: name of the container.
    """

    source: str
    namespace: str
    pod: str
    uid: str
    container: str

    @classmethod
    def of(cls, pod: Mapping[str, Any], name: str) -> LoggedContainer:
        """Return a container of a pod.

        Args:
            pod: the pod, as the API returns it.
            name: name of the container.
        """
        source = f"{step_of(pod)}-{rank_of(pod)}" + (f"/{name}" if len(container_statuses(pod)) > 1 else "")
        namespace, pod_name, uid = (get_str(pod, "metadata", field) for field in ("namespace", "name", "uid"))
        return cls(source, namespace, pod_name, uid, name)

    @property
    def key(self) -> tuple[str, str]:
        """The pod's uid and the container's name."""
        return self.uid, self.container

    def command(self, *, previous: bool = False, after: LogTime | None = None) -> str:
        """Return the kubectl command that prints the log.

        Args:
            previous: print the log of the run before the last restart.
            after: time from which it prints the log; None for the whole log.
        """
        since = f" --since-time={format_time(after)}" if after else ""
        return (
            f"kubectl logs {self.pod} -c {self.container} -n {self.namespace}{' --previous' if previous else ''}{since}"
        )

    def notice(self, text: str) -> LogNotice:
        """Return a notice about this container."""
        return LogNotice(self.source, text, log=self)

    def missing(
        self,
        reason: str,
        *,
        after: LogTime | None = None,
        where: str = "",
        previous: bool = False,
        run: int = 0,
        skipped_runs: int = 0,
    ) -> LogNotice:
        """Return the notice that output of the container is missing until its end.

        Args:
            reason: why it is missing.
            after: time of the last line that was received; None if none was.
            where: where to read it; empty for the kubectl command.
            previous: whether the output is that of the run before the last restart.
            run: number of restarts before the run whose output is missing.
            skipped_runs: number of earlier runs, if all output of several runs is missing.
        """
        whose = f"run {run + 1} of " if run else ""
        if skipped_runs:
            whose = f"{skipped_runs} earlier run{'s' * (skipped_runs > 1)} of "
        extent = f"after {format_time(after)}" if after else "from its beginning"
        where = where or f"while the pod exists, read it with: {self.command(previous=previous, after=after)}"
        text = (
            f"output of {whose}container {self.container} of pod {self.pod} may be missing {extent}: {reason}; {where}"
        )
        return self.notice(text)

    def rotated(self, after: LogTime, until: LogTime) -> LogNotice:
        """Return the notice that lines between two times may be in a rotated log file."""
        folder = f"/var/log/pods/{self.namespace}_{self.pod}_{self.uid}/{self.container}"
        return self.notice(
            f"output of container {self.container} of pod {self.pod} may be missing between {format_time(after)} and "
            f"{format_time(until)}: the kubelet rotated the log file while no stream was open, and serves the newest "
            f"file only; while the pod exists, its node has the rotated files in {folder}"
        )


class Tail:
    """The last lines of a log, in bounded memory.

    Of a very long line it keeps the first 2000 characters.
    """

    def __init__(self, max_lines: int) -> None:
        """Create an empty tail.

        Args:
            max_lines: number of lines to keep.
        """
        self._lines: deque[str] = deque(maxlen=max_lines)
        self._continued = False

    def extend(self, lines: list[LogLine]) -> None:
        """Add lines; frames and notices are left out."""
        for line in lines[_find_last(lines, self._lines.maxlen or 0) :]:
            if isinstance(line, LogNotice):
                continue
            if not line.frame and not self._continued:
                cut = line.continued or len(line.text) > _MAX_TAIL_CHARACTERS
                self._lines.append(line.text[:_MAX_TAIL_CHARACTERS] + "…" if cut else line.text)
            self._continued = line.continued

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines, oldest first."""
        return tuple(self._lines)


def _find_last(lines: list[LogLine], count: int) -> int:
    """Return an index after which there are `count` lines and the piece before them."""
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        if not (line.frame or line.continued or isinstance(line, LogNotice)):
            count -= 1
            if count < -1:
                return at
    return 0


def byte_length(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def format_time(time: LogTime) -> str:
    """Return a line's time in RFC 3339 format, with whole seconds."""
    return datetime.fromtimestamp(time[0], timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
