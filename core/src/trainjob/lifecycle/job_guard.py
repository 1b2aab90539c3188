"""Kill action on a TrainJob that an unexpected error leaves without a waiting process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from trainjob.client import Cluster
from trainjob.errors import TrainJobError
from trainjob.lifecycle.cancellation import cancel
from trainjob.lifecycle.identity import JobReference, RunKey
from trainjob.lifecycle.job_search import list_labelled_jobs
from trainjob.lifecycle.submission import reference_to
from trainjob.status import derive_verdict


class JobGuard:
    """Record of whether a TrainJob may run while no process waits for it.

    It covers the time from the TrainJob's creation to the end of the wait. Use [guard_submission][] around
    `submit`, with [record_creation][] as `before_create`, and [guard_wait][] around `wait`. After an error, the caller
    calls [apply_kill_action][] if `may_run_unattended` is true. A typed error of `wait` ends the guard, because `wait`
    documents the state of the TrainJob after each of its errors.

    Attributes:
        reference: the TrainJob; None until it is known.
        may_run_unattended: whether a TrainJob may be running while no process waits for it.
    """

    def __init__(self) -> None:
        """Create a guard without a TrainJob."""
        self.reference: JobReference | None = None
        self.may_run_unattended = self._creation_sent = False

    def record_creation(self, name: str, namespace: str) -> None:  # noqa: ARG002 - as `before_create` is called
        """Record that a request to create a TrainJob is about to be sent."""
        self._creation_sent = True

    @contextlib.contextmanager
    def guard_submission(self) -> Iterator[None]:
        """Guard a call of `submit`.

        After a typed error the guard stays active only if a request to create a TrainJob may have been sent.
        """
        self.reference, self.may_run_unattended, self._creation_sent = None, True, False
        try:
            yield
        except TrainJobError:
            self.may_run_unattended = self._creation_sent
            raise

    @contextlib.contextmanager
    def guard_wait(self) -> Iterator[None]:
        """Guard a call of `wait`; its result or a typed error ends the guard."""
        try:
            yield
        except TrainJobError:
            self.may_run_unattended = False
            raise
        self.may_run_unattended = False

    def apply_kill_action(self, cluster: Cluster, key: RunKey, namespace: str, on_kill: str) -> list[str]:
        """Apply the kill action to the TrainJob, and end the guard.

        If the TrainJob is not known, the action applies to all unfinished TrainJobs of the run key.

        Args:
            cluster: the cluster of the TrainJob.
            key: the run key that it was submitted for.
            namespace: namespace that is listed if the TrainJob is not known; empty means the connection's.
            on_kill: `delete`, `suspend` or `keep`.

        Returns:
            One line for each TrainJob: its name and the result of the action.

        Raises:
            ClusterError: a request failed or was denied.
        """
        self.may_run_unattended = False
        references = (
            [self.reference] if self.reference else _list_unfinished(cluster, key, namespace or cluster.namespace)
        )
        return [f"TrainJob {each}: {cancel(cluster, each, on_kill).text}" for each in references]


def _list_unfinished(cluster: Cluster, key: RunKey, namespace: str) -> list[JobReference]:
    jobs = list_labelled_jobs(cluster, key, namespace)
    return [reference_to(job, adopted=True) for job in jobs if not derive_verdict(job).phase.finished]


@contextlib.contextmanager
def apply_kill_action_on_error(
    guard: JobGuard,
    cluster: Cluster,
    key: RunKey,
    namespace: str,
    on_kill: str,
    report: Callable[[str], None],
    *,
    ignored_errors: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Apply the kill action when an error leaves the TrainJob of `guard` unattended.

    The error is raised again. It is for callers that do not know whether they will be started again.

    Args:
        guard: guard of the TrainJob.
        cluster: the cluster of the TrainJob.
        key: see [JobGuard.apply_kill_action][].
        namespace: see [JobGuard.apply_kill_action][].
        on_kill: see [JobGuard.apply_kill_action][].
        report: called with each line about the result of the action.
        ignored_errors: exceptions that are not errors, and that the caller handles itself.
    """
    try:
        yield
    except ignored_errors:
        raise
    except Exception as error:
        if guard.may_run_unattended:
            try:
                for line in guard.apply_kill_action(cluster, key, namespace, on_kill):
                    report(f"{line}, because of an error: {type(error).__name__}: {error}")
            except Exception as failure:  # noqa: BLE001 - the first error is the one to raise
                report(
                    f"A TrainJob of this step may still run, because it could not be deleted or suspended: {failure}"
                )
        raise
