"""Logs of the TrainJobs that users view on the page: the last lines, and the loss or the reward by step.

A log is followed while the page requests it. It is read from its beginning, because the curve begins there. It is
kept in bounded memory, and following ends 30 s after its last request.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainjob.client import LogFollower, ObjectEvent, RateLimit
from trainjob.client.log_rate import TokenBucket
from trainjob.control_characters import escape_control_characters
from trainjob.errors import OutOfThreads
from trainjob.frameworks.log_parser import JobLogParser
from trainjob.status import Progress, find_failures
from trainjob.status.pods import rank_of
from trainjob.threads import start_thread

if TYPE_CHECKING:
    from trainjob.client import Cluster, LogLine

_MAX_LINES, _MAX_LINE_LENGTH = 300, 2000
_MAX_POINTS = 1000
_MAX_PODS = 8  # followed at the same time for one TrainJob: each takes a thread and a connection
_MAX_JOBS = 32
_IDLE_SECONDS = 30.0
# Of one TrainJob: a training that floods its log must not occupy the API server while a page is open.
_RATE = RateLimit(bytes_per_second=1e6, burst=8e6, line_overhead=100)
_CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[@-~]")  # colors and cursor movements, which a page shows as text


_CURVES = ("loss", "reward", "eval_loss", "eval_reward")


class MetricCurve:
    """Loss or another metric by step, in at most 1,000 points.

    Beyond that number, every second point is dropped.
    """

    def __init__(self, name: str) -> None:
        """Create an empty curve.

        Args:
            name: `loss`, or the name of the metric.
        """
        self._name = name
        self._points: list[tuple[int, float]] = []
        self._newest: tuple[int, float] | None = None
        self._stride, self._count = 1, 0

    def add(self, progress: Progress) -> None:
        """Add one point, unless the progress has no value of its step."""
        value = progress.value_at_step(self._name)
        if value is None or (self._newest is not None and self._newest[0] >= progress.step):
            return
        self._newest = (progress.step, value)
        if self._count % self._stride == 0:
            self._points.append(self._newest)
        self._count += 1
        if len(self._points) > _MAX_POINTS:
            self._points, self._stride = self._points[::2], self._stride * 2

    @property
    def points(self) -> list[tuple[int, float]]:
        """Pairs of step and value, in the order of the steps, always with the newest pair."""
        if self._newest is None or self._newest == self._points[-1]:
            return list(self._points)
        return [*self._points, self._newest]


class LogTail:
    """Followed logs of one TrainJob: of rank 0 of each step, and of pods that failed."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._lock = threading.Lock()
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._log_parser = JobLogParser()
        self._curves = {name: MetricCurve(name) for name in _CURVES}
        self._newest: Progress | None = None
        self._bucket = TokenBucket(_RATE, time.monotonic())
        self._follower = LogFollower(cluster, namespace, self._add_line)

    def snapshot(self, pods: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the lines, curves and progress that are known by now.

        `curve` is the name of the main curve: `reward` if the training reports it, because the loss of such a training
        is not meaningful, and `loss` otherwise. Threads continue to read the logs in the background.

        Args:
            pods: the TrainJob's pods in their present state.
        """
        chosen = sorted(pods, key=lambda pod: (rank_of(pod), not find_failures([pod])))
        for pod in [pod for pod in chosen if rank_of(pod) == 0 or find_failures([pod])][:_MAX_PODS]:
            self._follower.observe(ObjectEvent(pod))
        with self._lock:
            newest = self._newest
            progress = {**newest.to_dict(), "percent": newest.percent} if newest else None
            name = "reward" if self._curves["reward"].points else "loss"
            return {
                "lines": list(self._lines),
                "curve": name,
                "points": self._curves[name].points,
                "evaluation_points": self._curves[f"eval_{name}"].points,
                "progress": progress,
            }

    def stop(self) -> None:
        """Stop reading at once."""
        self._follower.stop()

    def _add_line(self, line: LogLine) -> None:
        with self._lock:
            if progress := self._log_parser.feed(line.text):
                self._newest = progress
                for curve in self._curves.values():
                    curve.add(progress)
            if not line.frame:
                self._lines.append(escape_control_characters(_CONTROL_SEQUENCE.sub("", str(line)))[:_MAX_LINE_LENGTH])
            now = time.monotonic()
            self._bucket.spend(line.text, now, now)
            pause = self._bucket.seconds_to_wait(now)
        time.sleep(pause)  # the reading thread: the API server then sends the log no faster


class LogTails:
    """Logs that are followed now, by the uids of their TrainJobs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, idle_seconds: float = _IDLE_SECONDS) -> None:
        """Create an empty collection.

        Args:
            clock: returns monotonic seconds; for tests.
            idle_seconds: seconds after the last request until following ends.
        """
        self._clock, self._idle_seconds = clock, idle_seconds
        self._lock = threading.Lock()
        self._tails: dict[str, tuple[float, LogTail]] = {}
        self._stops_idle = False  # whether a thread ends the following of logs that are not requested

    def get(self, uid: str, cluster: Cluster, namespace: str) -> LogTail:
        """Return the followed logs of a TrainJob, and start following if necessary.

        If there are more than 32, following ends for the TrainJob with the oldest request.
        """
        with self._lock:
            tail = self._tails.pop(uid)[1] if uid in self._tails else LogTail(cluster, namespace)
            self._tails[uid] = (self._clock(), tail)  # moved to the end, so that the first entry has the oldest request
            if len(self._tails) > _MAX_JOBS:
                self._tails.pop(next(iter(self._tails)))[1].stop()
            if not self._stops_idle:
                with contextlib.suppress(OutOfThreads):  # the next request tries again
                    start_thread(self._stop_idle, name="idle-logs")
                    self._stops_idle = True
            return tail

    def __len__(self) -> int:
        return len(self._tails)

    def _stop_idle(self) -> None:
        """End the following of logs that were not requested for a while, until no log is followed."""
        while True:
            time.sleep(self._idle_seconds)
            with self._lock:
                oldest = self._clock() - self._idle_seconds
                for uid in [uid for uid, (requested_at, _) in self._tails.items() if requested_at <= oldest]:
                    self._tails.pop(uid)[1].stop()
                if not self._tails:
                    self._stops_idle = False
                    return
