"""Gauges of the TrainJobs that the triggers of this process wait for, and of their informers."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainjob.errors import OutOfThreads
from trainjob.threads import start_thread

if TYPE_CHECKING:
    from trainjob.client import Cluster, SharedInformer
    from trainjob.status import Phase
    from trainjob_airflow.task_progress import TaskProgress

_INTERVAL_SECONDS = 5.0


def _report_phases(hostname: str, counts: Counter[Phase | None]) -> None:
    from trainjob.status import Phase
    from trainjob_airflow.metrics import JOBS, emit

    for phase in Phase:
        emit(JOBS, counts[phase], {"hostname": hostname, "phase": phase.value})


class InformerCounts:
    """Counts of informers that were already sent."""

    def __init__(self) -> None:
        """Create an object that has sent nothing yet."""
        self._sent: weakref.WeakKeyDictionary[SharedInformer, tuple[int, int]] = weakref.WeakKeyDictionary()

    def report(self, hostname: str, informers: Iterable[SharedInformer]) -> None:
        """Send the new relists and errors of each kind of object, and the age of its last sync.

        The age is that of the informer that has not been in sync for the longest time. Informers that do not run have
        none.

        Args:
            hostname: hostname of the triggerer.
            informers: all informers of the process.
        """
        from trainjob_airflow.metrics import INFORMER_ERRORS, INFORMER_RELISTS, INFORMER_SYNC_AGE, emit

        relists, errors, ages = Counter[str](), Counter[str](), defaultdict[str, list[float]](list)
        for informer in informers:
            state, (sent_relists, sent_errors) = informer.state, self._sent.get(informer, (0, 0))
            self._sent[informer] = (state.relists, state.errors)
            relists[state.resource] += state.relists - sent_relists
            errors[state.resource] += state.errors - sent_errors
            if state.is_running and state.seconds_since_sync is not None:
                ages[state.resource].append(state.seconds_since_sync)
        for resource in relists:
            tags = {"hostname": hostname, "resource": resource}
            emit(INFORMER_RELISTS, relists[resource], tags)
            emit(INFORMER_ERRORS, errors[resource], tags)
            emit(INFORMER_SYNC_AGE, max(ages[resource], default=0.0), tags)


class WaitingJobs:
    """Numbers of the TrainJobs that the triggers of this process wait for.

    They are counted when a phase changes, because a triggerer may wait for 10,000 TrainJobs. A daemon thread sends the
    gauges every 5 s from the first trigger on, also when no trigger waits. So a gauge does not keep the value of a
    TrainJob that has ended, and no event loop waits for a socket.
    """

    def __init__(self) -> None:
        """Create an object without TrainJobs and without a thread."""
        self._lock = threading.Lock()
        self._phases: dict[TaskProgress, Phase | None] = {}
        self._counts: Counter[Phase | None] = Counter()
        self._clusters: weakref.WeakSet[Cluster] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        self._informer_counts = InformerCounts()

    @contextlib.contextmanager
    def add(self, cluster: Cluster, progress: TaskProgress) -> Iterator[None]:
        """Count a TrainJob in the gauges until the context ends.

        Args:
            cluster: client of its cluster.
            progress: its progress, which has the phase.
        """
        with self._lock:
            self._phases[progress] = progress.phase
            self._counts[progress.phase] += 1
            self._clusters.add(cluster)
            if self._thread is None or not self._thread.is_alive():  # threads do not survive a fork
                with contextlib.suppress(OutOfThreads):  # the next trigger tries again
                    self._thread = start_thread(self._run, name="trainjob-metrics")
        progress.on_phase = self._update_phase
        try:
            yield
        finally:
            with self._lock:
                self._counts[self._phases.pop(progress)] -= 1

    def count(self) -> Counter[Phase | None]:
        """Return the number of TrainJobs by phase; None for those whose phase is not known yet."""
        with self._lock:
            return self._counts.copy()

    def _update_phase(self, progress: TaskProgress) -> None:
        with self._lock:
            if progress in self._phases:  # its wait may have been cancelled
                self._counts[self._phases[progress]] -= 1
                self._phases[progress] = progress.phase
                self._counts[progress.phase] += 1

    def _run(self) -> None:
        from airflow.utils.net import get_hostname

        hostname = get_hostname()
        while True:
            _report_phases(hostname, self.count())
            with self._lock:
                clusters = list(self._clusters)
            self._informer_counts.report(hostname, [informer for cluster in clusters for informer in cluster.informers])
            del clusters
            time.sleep(_INTERVAL_SECONDS)


waiting_jobs = WaitingJobs()
"""The TrainJobs of this process."""
