"""Kill action on a TrainJob that an unexpected error leaves without a waiting process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from trainjob.client import Cluster
from trainjob.errors import TrainJobError
from trainjob.lifecycle.cancellation import give_up_unless_ended
from trainjob.lifecycle.identity import JobReference, RunKey
from trainjob.lifecycle.submission import reference_to
from trainjob.manifest import labels
from trainjob.status import judge


class JobGuard:
    """Record of whether a TrainJob may run while no process waits for it.

    It covers the time from the TrainJob's creation to the end of the wait. Use [submitting][] around `submit`, with
    [note_creation][] as `before_create`, and [waiting][] around `wait`. After an error, the caller applies the kill
    action with [end][] if `is_needed` is true. A typed error of `wait` leaves the TrainJob as `wait` documents it.

    Attributes:
        reference: the TrainJob; None until it is known.
        is_needed: whether a TrainJob may run unattended.
    """

    def __init__(self) -> None:
        """Create a guard without a TrainJob."""
        self.reference: JobReference | None = None
        self.is_needed = self._creation_sent = False

    def note_creation(self, name: str, namespace: str) -> None:  # noqa: ARG002 - as `before_create` is called
        """Record that a request to create a TrainJob is about to be sent."""
        self._creation_sent = True

    @contextlib.contextmanager
    def submitting(self) -> Iterator[None]:
        """Guard a call of `submit`.

        After a typed error the guard stays active only if a request to create a TrainJob may have been sent.
        """
        self.reference, self.is_needed, self._creation_sent = None, True, False
        try:
            yield
        except TrainJobError:
            self.is_needed = self._creation_sent
            raise

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Guard a call of `wait`; its result or a typed error ends the guard."""
        try:
            yield
        except TrainJobError:
            self.is_needed = False
            raise
        self.is_needed = False

    def end(self, cluster: Cluster, key: RunKey, namespace: str, on_kill: str) -> list[str]:
        """Apply the kill action to the TrainJob, and end the guard.

        If the TrainJob is not known, the action applies to all unfinished TrainJobs of the run key.

        Args:
            cluster: the cluster of the TrainJob.
            key: the run key that it was submitted for.
            namespace: namespace that is listed if the TrainJob is not known; empty means the connection's.
            on_kill: `delete`, `suspend` or `keep`.

        Returns:
            One line for each TrainJob: its name and what happened to it.

        Raises:
            ClusterError: a request failed or was denied.
        """
        self.is_needed = False
        found = [self.reference] if self.reference else _unfinished(cluster, key, namespace or cluster.namespace)
        return [f"TrainJob {one}: {give_up_unless_ended(cluster, one, on_kill)}" for one in found]


def _unfinished(cluster: Cluster, key: RunKey, namespace: str) -> list[JobReference]:
    jobs = cluster.list_trainjobs(namespace, f"{labels.RUN_KEY}={key.digest}")
    return [reference_to(job, adopted=True) for job in jobs if not judge(job).phase.finished]


@contextlib.contextmanager
def ended_after_errors(
    guard: JobGuard,
    cluster: Cluster,
    key: RunKey,
    namespace: str,
    on_kill: str,
    report: Callable[[str], None],
    *,
    unless: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Apply the kill action when an error leaves the TrainJob of `guard` unattended.

    The error is raised again. This is for callers that do not know whether they will be started again.

    Args:
        guard: guard of the TrainJob.
        cluster: the cluster of the TrainJob.
        key: see [JobGuard.end][].
        namespace: see [JobGuard.end][].
        on_kill: see [JobGuard.end][].
        report: called with each line about what happened to the TrainJob.
        unless: exceptions that are not errors, and that the caller handles itself.
    """
    try:
        yield
    except unless:
        raise
    except Exception as error:
        if guard.is_needed:
            try:
                for line in guard.end(cluster, key, namespace, on_kill):
                    report(f"{line}, because of an error: {type(error).__name__}: {error}")
            except Exception as failure:  # noqa: BLE001 - the first error is the one to raise
                report(f"A TrainJob of this step may still run: it could not be ended: {failure}")
        raise
