"""Runs of the containers of one TrainJob, as the statuses of its pods report them.

A run is one life of a container, between two restarts. Each run has its own log.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trainjob.status.nested_fields import get_int, get_mapping, get_str
from trainjob.status.pods import restarts_in_place

RunKey = tuple[str, str, int]
"""The pod's uid, the container's name, and the restarts before this run."""

_NEVER_STARTED = "1970-01-01T00:00:00Z"  # `startedAt` of a container whose command could not start (containerd)


class ObservedRuns(NamedTuple):
    """Runs of a container that its status shows.

    Attributes:
        readable: runs whose logs the API may serve now, oldest first.
        skipped: numbers of the runs that were not observed before and whose logs the API no longer serves.
    """

    readable: list[RunKey]
    skipped: range


class ContainerRuns:
    """Record of the runs of containers; its methods may be called from any thread."""

    def __init__(self) -> None:
        """Create a record of no runs."""
        self._changed = threading.Condition()
        self._ended: set[RunKey] = set()
        self._permanently_ended: set[RunKey] = set()
        self._restarts: dict[tuple[str, str], int] = {}
        self._newest_known: dict[tuple[str, str], int] = {}
        self._waiting_for_restart: set[tuple[str, str]] = set()
        self._deleting: set[str] = set()  # uids of pods
        self._deleted: set[str] = set()
        self._stopped = False

    def observe(self, pod: Mapping[str, Any], status: Mapping[str, Any], *, deleted: bool) -> ObservedRuns:
        """Record a container's status, and return the runs that it shows."""
        name, uid, restarts = get_str(status, "name"), get_str(pod, "metadata", "uid"), get_int(status, "restartCount")
        state = get_mapping(status, "state")
        waits = "waiting" in state and "terminated" in get_mapping(status, "lastState")
        done, run = "terminated" in state, (uid, name, restarts)
        deleting = deleted or bool(get_str(pod, "metadata", "deletionTimestamp"))
        with self._changed:
            self._restarts[uid, name] = restarts
            (self._waiting_for_restart.add if waits else self._waiting_for_restart.discard)((uid, name))
            if deleting:
                self._deleting.add(uid)
            if deleted:
                self._deleted.add(uid)
            if restarts:
                self._ended.add((uid, name, restarts - 1))
            if deleted or waits or done:
                self._ended.add(run)
            # If the pod is being deleted, another pod may get its name.
            if done and not deleting and not (restarts_in_place(pod) and get_int(state, "terminated", "exitCode")):
                self._permanently_ended.add(run)
            self._changed.notify_all()
            known = self._newest_known.get((uid, name), -1)
            self._newest_known[uid, name] = max(known, restarts)
        skipped = range(known + 1, restarts - 1)
        if deleted:
            return ObservedRuns([], skipped)
        has_output = (
            waits or "running" in state or (done and get_str(state, "terminated", "startedAt") != _NEVER_STARTED)
        )
        # If a run failed before it was observed, its log is still available as the previous log.
        earlier = [(uid, name, restarts - 1)] if restarts else []
        return ObservedRuns([*earlier, run] if has_output else earlier, skipped)

    def mark_deleted(self, run: RunKey) -> None:
        """Record that the API no longer has the run's pod."""
        with self._changed:
            self._ended.add(run)
            self._deleted.add(run[0])
            self._changed.notify_all()

    def stop(self) -> None:
        """End all waits for a change."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def has_ended(self, run: RunKey) -> bool:
        """Return whether the run has ended, or its pod was deleted."""
        return run in self._ended

    def has_ended_permanently(self, run: RunKey) -> bool:
        """Return whether the run has ended, and the container will not be restarted."""
        return run in self._permanently_ended

    def is_deleting(self, run: RunKey) -> bool:
        """Return whether the run's pod is being deleted."""
        return run[0] in self._deleting

    def is_deleted(self, run: RunKey) -> bool:
        """Return whether the run's pod is deleted."""
        return run[0] in self._deleted

    def count_later_runs(self, run: RunKey) -> int:
        """Return how many runs of the container followed this one or are about to follow.

        A container that waits for a restart has ended its last run.
        """
        return self._restarts.get(run[:2], run[2]) + (run[:2] in self._waiting_for_restart) - run[2]

    def wait_for_end(self, run: RunKey, seconds: float) -> bool:
        """Wait until the run has ended, and return whether it has."""
        return self._wait_for(lambda: run in self._ended, seconds) and run in self._ended

    def pause(self, run: RunKey, seconds: float) -> None:
        """Wait for some seconds; the pause ends early when the run ends."""
        ended = run in self._ended
        self._wait_for(lambda: run in self._ended and not ended, seconds)

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._stopped or condition(), timeout=seconds)
