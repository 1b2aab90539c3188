"""When and how the reason is read why a TrainJob does not start, for every waiter and for the live status."""

from __future__ import annotations

import contextlib
from typing import Any

from trainjob.client import Cluster, warning_events
from trainjob.errors import ClusterError
from trainjob.lifecycle.wait_policy import QUOTA, WaitPolicy

_FIRST, _LONGEST = 15.0, 240.0  # seconds


class DiagnosisSchedule:
    """Times at which one job is diagnosed: soon at first, then ever less often. Reads no clock.

    A job that begins to wait for something else is diagnosed soon again.
    """

    def __init__(self) -> None:
        """Start with nothing to diagnose."""
        self._cause, self._pause, self._at = "", _FIRST, 0.0

    def left(self, cause: str, now: float) -> float | None:
        """Return the seconds to the next diagnosis, or None if the job does not wait.

        Args:
            cause: what the job waits for, as a word; empty if it does not wait.
            now: seconds of any monotonic clock.
        """
        if cause != self._cause:
            self._cause, self._pause, self._at = cause, _FIRST, now + _FIRST
        return max(0.0, self._at - now) if cause else None

    def done(self, now: float) -> None:
        """Record that the job was diagnosed."""
        self._pause = min(self._pause * 2.0, _LONGEST)
        self._at = now + self._pause


def refresh_diagnosis(cluster: Cluster, policy: WaitPolicy, now: float) -> None:
    """Read why a TrainJob does not start, and pass it to its wait policy (blocking I/O).

    A failed request adds nothing: the policy decides without it.

    Args:
        cluster: the cluster of the TrainJob.
        policy: its wait policy; `waits_for` says what to read.
        now: seconds of the policy's clock.
    """
    meta = policy.job["metadata"]
    events: list[dict[str, Any]] = []
    workload = None
    with contextlib.suppress(ClusterError):
        if policy.waits_for == QUOTA:
            workload = cluster.diagnostics.workload(meta["uid"], meta["namespace"])
        else:
            events = warning_events(cluster, meta["namespace"], meta["name"], policy.pods.values(), recent=True)
    policy.learn(events, workload, now)
