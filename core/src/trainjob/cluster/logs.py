"""Following the logs of all containers of a TrainJob: live, prefixed, resumed after a break, in bounded memory."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from trainjob.cluster.backoff import Backoff
from trainjob.errors import AdmissionRefused, ClusterError, NotFound
from trainjob.status.pods import rank_of, step_of

if TYPE_CHECKING:
    from trainjob.cluster.api import Cluster
    from trainjob.cluster.watch import Change

_SILENCE_SECONDS = 120.0  # a training may be silent for long; then the stream is opened anew from where it was
_LONGEST_LINE = 1 << 20  # bytes; the rest of a longer line is cut off
_TAIL_LINES = 20
# RFC 3339 with up to nanoseconds, as the kubelet puts it in front of each line.
_STAMPED = re.compile(
    rb"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ?(?P<text>.*)", re.DOTALL
)


@dataclass(frozen=True)
class LogLine:
    """One line, or one frame of a progress bar.

    Attributes:
        source: step and rank, such as `node-0` (with the container's name where a pod has several).
        text: the line without its end.
        frame: a state of a line that was overwritten with a carriage return, as progress bars do; worth reading for
            progress, not worth keeping.
    """

    source: str
    text: str
    frame: bool = False

    def __str__(self) -> str:
        return f"[{self.source}] {self.text}"


class LogFollower:
    """Follows every container of one TrainJob's pods, one thread each, and hands the lines to `emit`.

    Pods that appear late, containers that restart and streams that break are followed on. Trouble with logs never
    fails a job: it is told as a line and tried again.
    """

    def __init__(self, cluster: Cluster, namespace: str, emit: Callable[[LogLine], None]) -> None:
        """Nothing is followed yet.

        Args:
            cluster: where the pods are.
            namespace: the pods' namespace.
            emit: takes each line; called from several threads, one at a time.
        """
        self._cluster, self._namespace, self._emit = cluster, namespace, emit
        self._lock = threading.Lock()
        self._observed = threading.Condition(self._lock)
        self._threads: dict[tuple[str, str, int], threading.Thread] = {}
        self._ended: set[tuple[str, str, int]] = set()
        self._restarts: dict[tuple[str, str], int] = {}
        self._tails: dict[str, deque[str]] = {}
        self._streams: set[Any] = set()
        self._stopped = threading.Event()

    def observe(self, change: Change) -> None:
        """Look at a pod's newest state: follow what has started, note what has ended. Does not block."""
        pod = change.found
        if pod is None or self._stopped.is_set():
            return
        status = pod.get("status") or {}
        statuses = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
        for container in statuses:
            self._observe_container(pod, container, several=len(statuses) > 1, gone=change.gone)

    def _observe_container(
        self, pod: Mapping[str, Any], status: Mapping[str, Any], *, several: bool, gone: bool
    ) -> None:
        name, uid, restarts = status["name"], pod["metadata"]["uid"], int(status.get("restartCount") or 0)
        state = status.get("state") or {}
        instance = (uid, name, restarts)
        with self._lock:
            self._restarts[uid, name] = restarts
            if restarts:
                self._ended.add((uid, name, restarts - 1))
            if gone or "terminated" in state:
                self._ended.add(instance)
            self._observed.notify_all()
            if gone:
                return
            source = f"{step_of(pod)}-{rank_of(pod)}" + (f"/{name}" if several else "")
            begun = [instance] if "running" in state or "terminated" in state else []
            # One that failed before it was seen is still there as the previous one.
            earlier = [(uid, name, restarts - 1)] if restarts else []
            for key in [*earlier, *begun]:
                if key not in self._threads:
                    self._start(_Instance(pod["metadata"]["name"], name, source, key))

    def _start(self, job: _Instance) -> None:
        thread = threading.Thread(target=self._follow, args=(job,), name=f"log-{job.source}", daemon=True)
        self._threads[job.key] = thread
        thread.start()

    def catch_up(self, seconds: float) -> None:
        """Read the logs of containers that have ended to their ends, or until the time is over; others go on."""
        with self._lock:
            threads = [thread for key, thread in self._threads.items() if key in self._ended]
        _join(threads, seconds)

    def finish(self, seconds: float) -> None:
        """After the job's end: read on until every ended container's log is read whole, or the time is over."""
        with self._lock:  # a thread is registered before it is started
            threads = list(self._threads.values())
        _join(threads, seconds)
        self.stop()

    def stop(self) -> None:
        """Stop following at once."""
        self._stopped.set()
        with self._lock:
            streams = list(self._streams)
        for stream in streams:
            with contextlib.suppress(OSError, ValueError):
                stream.shutdown()

    def tail(self, source: str) -> tuple[str, ...]:
        """The last lines seen of a source; the pod may be gone by now."""
        with self._lock:
            return tuple(self._tails.get(source, ()))

    # -- one thread for each container instance ---------------------------------------------------------------------

    def _follow(self, job: _Instance) -> None:
        backoff, position = Backoff(longest=10.0), _Position()
        while not self._stopped.is_set():
            ended = job.key in self._ended  # read before the stream: what is written until now will be in it
            try:
                self._read(job, position, follow=not ended)
                backoff.reset()
            except NotFound:
                return  # the pod is gone, and its log with it
            except ClusterError as error:
                if isinstance(error, AdmissionRefused) and ended:
                    return  # no such log, and none to come
                if self._stopped.wait(backoff.next(error)):
                    return
                continue
            if ended or self._ends_now(job.key):
                return

    def _ends_now(self, key: tuple[str, str, int]) -> bool:
        """A followed stream has ended by itself: with its container, as the pod's status is about to say?

        If not (a server may end a stream of hours), the log is to be opened again; never before this is known, as a
        restarted container's log would be taken for this one's.
        """
        with self._observed:
            return self._observed.wait_for(lambda: key in self._ended or self._stopped.is_set(), timeout=2.0)

    def _read(self, job: _Instance, position: _Position, *, follow: bool) -> None:
        stream = self._cluster.open_log(
            job.pod,
            self._namespace,
            job.container,
            follow=follow,
            previous=self._restarted(job),
            since=position.since,
            read_seconds=_SILENCE_SECONDS,
        )
        with self._lock:
            self._streams.add(stream)
        try:
            for stamped in position.unread(stamped_lines(stream)):
                self._hand_out(job.source, stamped)
        finally:
            with self._lock:
                self._streams.discard(stream)
            stream.close()

    def _restarted(self, job: _Instance) -> bool:
        uid, container, restarts = job.key
        return self._restarts.get((uid, container), restarts) > restarts

    def _hand_out(self, source: str, line: StampedLine) -> None:
        with self._lock:
            self._emit(LogLine(source, line.text, frame=line.partial))
            if not line.partial:
                self._tails.setdefault(source, deque(maxlen=_TAIL_LINES)).append(line.text)


def _join(threads: list[threading.Thread], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


@dataclass(frozen=True)
class _Instance:
    pod: str
    container: str
    source: str
    key: tuple[str, str, int]


@dataclass(frozen=True)
class StampedLine:
    """A log line with the time the kubelet saw it; `partial` when it ended with a carriage return, not a newline."""

    time: str
    text: str
    partial: bool = False


class _Position:
    """How far a log was read, so that a new stream goes on without loss or repetition.

    The API resumes at whole seconds, so the lines of the last second come again: those up to the last time seen are
    skipped, by count where several carry that same time.
    """

    def __init__(self) -> None:
        self._time, self._count = "", 0

    @property
    def since(self) -> datetime | None:
        """Where to resume; None at the start."""
        return datetime.fromisoformat(self._time[:19] + "+00:00") if self._time else None

    def unread(self, lines: Iterator[StampedLine]) -> Iterator[StampedLine]:
        """Those lines that were not read before; frames of a line that was not read to its end come again."""
        last, seen, repeated, stamp, skip = self._time, self._count, 0, "", False
        for line in lines:
            if line.time:
                stamp = line.time
                skip = bool(last) and (_order(stamp) < _order(last) or (stamp == last and repeated < seen))
            if not skip:
                yield line
            if line.partial:
                continue
            if skip:
                repeated += stamp == last
            else:
                self._note(stamp)

    def _note(self, stamp: str) -> None:
        if stamp == self._time:
            self._count += 1
        elif stamp:
            self._time, self._count = stamp, 1


def _order(stamp: str) -> tuple[str, str]:
    """Sorts times that may have different numbers of fraction digits."""
    return stamp[:19], stamp[20:].rstrip("Z").ljust(9, "0") if len(stamp) > 20 else "0" * 9


def stamped_lines(stream: Any) -> Iterator[StampedLine]:
    """The lines of a log stream with timestamps; carriage returns end partial lines, so progress bars are live.

    Raises:
        ClusterUnreachable: the stream broke.
    """
    for raw, end in _pieces(stream):
        if found := _STAMPED.fullmatch(raw):
            yield StampedLine(found["time"].decode(), found["text"].decode(errors="replace"), partial=end == b"\r")
        elif raw or end == b"\n":
            # The rest of a line that was drawn over with carriage returns has no time of its own.
            yield StampedLine("", raw.decode(errors="replace"), partial=end == b"\r")


def _pieces(stream: Any) -> Iterator[tuple[bytes, bytes]]:
    """(text, end) with end newline, carriage return, or nothing at the stream's end; over-long lines are cut."""
    import urllib3

    from trainjob.cluster.answers import from_network

    rest = b""
    try:
        for chunk in stream.stream(amt=None, decode_content=False):
            *pieces, rest = re.split(rb"(\r(?=[^\n])|\r?\n)", rest + chunk)
            for text, end in zip(pieces[::2], pieces[1::2], strict=True):
                yield text[:_LONGEST_LINE], end[-1:]
            rest = rest[:_LONGEST_LINE]
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise from_network(error, server="the API server", doing="read pods/log") from error
    if rest:
        yield rest, b""
