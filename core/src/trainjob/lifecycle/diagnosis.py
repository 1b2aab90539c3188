"""Diagnosis of TrainJobs that do not start: its schedule and its requests.

Every waiter and the live status use it.
"""

from __future__ import annotations

import contextlib
from typing import Any

from trainjob.client import Cluster, list_warning_events
from trainjob.errors import ClusterError
from trainjob.lifecycle.wait_policy import QUOTA, WaitPolicy

_FIRST_PAUSE, _LONGEST_PAUSE = 15.0, 240.0  # seconds


class DiagnosisSchedule:
    """Times at which one TrainJob is diagnosed, with pauses that double from 15 s to 240 s.

    The pauses start again at 15 s when the TrainJob waits for something else. The schedule reads no clock.
    """

    def __init__(self) -> None:
        """Create a schedule for a TrainJob that waits for nothing."""
        self._cause, self._pause, self._next_at = "", _FIRST_PAUSE, 0.0

    def seconds_until_due(self, cause: str, now: float) -> float | None:
        """Return the seconds until the next diagnosis, or None if the TrainJob waits for nothing.

        Args:
            cause: one word for what the TrainJob waits for; empty if it waits for nothing.
            now: seconds of any monotonic clock.
        """
        if cause != self._cause:
            self._cause, self._pause, self._next_at = cause, _FIRST_PAUSE, now + _FIRST_PAUSE
        return max(0.0, self._next_at - now) if cause else None

    def record_diagnosis(self, now: float) -> None:
        """Record that the TrainJob was diagnosed."""
        self._pause = min(self._pause * 2.0, _LONGEST_PAUSE)
        self._next_at = now + self._pause


def refresh_diagnosis(cluster: Cluster, policy: WaitPolicy, now: float) -> None:
    """Fetch the events or Workload of a pending TrainJob for its policy (blocking I/O).

    They show why the TrainJob does not start. If a request fails, the policy decides without its result.

    Args:
        cluster: the cluster of the TrainJob.
        policy: the wait policy of the TrainJob; its `waits_for` selects what is fetched.
        now: seconds of the policy's clock.
    """
    meta = policy.job["metadata"]
    events: list[dict[str, Any]] = []
    workload = None
    with contextlib.suppress(ClusterError):
        if policy.waits_for == QUOTA:
            workload = cluster.diagnostics.get_workload(meta["uid"], meta["namespace"])
        else:
            events = list_warning_events(cluster, meta["namespace"], meta["name"], policy.pods.values(), cached=True)
    policy.update_diagnosis(events, workload, now)
