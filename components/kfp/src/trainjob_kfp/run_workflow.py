"""Workflow of the launcher's pipeline run, as the owner of the TrainJob.

Kubernetes deletes the TrainJob after its owner, whatever has happened to the launcher and to the exit task. A finished
TrainJob has no owner, so that it remains as a record.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from types import TracebackType
from typing import Any

from trainjob.client import Cluster
from trainjob.client.resources import Resource
from trainjob.errors import ClusterError, Conflict, InvalidSpec, NotFound, Problem
from trainjob.lifecycle import JobReference
from trainjob.status import derive_verdict
from trainjob_kfp.identity import find_workflow, workflow_owner_reference
from trainjob_kfp.signal_read import SignalRead
from trainjob_kfp.standard_output import print_line

_WORKFLOWS = Resource("workflows", "/apis/argoproj.io/v1alpha1", "")
# KFP 2.17 stores the container of each component in a parameter of the Workflow (backend/src/v2/compiler/argocompiler).
_CONTAINER_PARAMETER = "implementations-"
_FUNCTION_OPTION = "--function_to_execute"
_PATCH_TRIES = 5  # each fails if a controller has changed the TrainJob since it was read

Owners = Sequence[Mapping[str, Any]]


def choose_owner(
    pod: Mapping[str, Any] | None, namespace: str, *, same_cluster: bool, may_outlive_run: bool, delete_with_run: bool
) -> dict[str, Any] | None:
    """Return the ownerReference for a TrainJob of the run; None if it gets no owner.

    Args:
        pod: the launcher's own pod; None outside of a pipeline run.
        namespace: namespace of the TrainJob.
        same_cluster: whether the TrainJob is in the launcher's cluster.
        may_outlive_run: whether the TrainJob may continue after the run has ended.
        delete_with_run: whether the author requires that the TrainJob is deleted along with the Workflow.

    Raises:
        InvalidSpec: `delete_with_run` is true, and the Workflow cannot be an owner.
    """
    if delete_with_run and not same_cluster:
        rule = "the TrainJob is in another cluster than the run: leave it out, or run both in one cluster"
        raise InvalidSpec(Problem("delete_with_run", "True", rule))
    if delete_with_run:
        return workflow_owner_reference(pod, namespace)
    if may_outlive_run or not same_cluster or pod is None or find_workflow(pod) is None:
        return None
    return workflow_owner_reference(pod, namespace) if pod["metadata"]["namespace"] == namespace else None


def read_has_cleanup(cluster: Cluster, pod: Mapping[str, Any] | None) -> bool:
    """Return whether the launcher's pipeline has the exit task `cleanup`.

    If the Workflow cannot be read, a line on standard output says so, and the result is False.

    Args:
        cluster: client of the launcher's cluster.
        pod: the launcher's own pod; None outside of a pipeline run.
    """
    if (found := find_workflow(pod)) is None or pod is None:
        return False
    try:
        workflow = cluster.get_object(_WORKFLOWS, found["name"], pod["metadata"]["namespace"])
    except ClusterError as error:
        print_line(
            f"warning: Workflow {found['name']} cannot be read, so this TrainJob continues after the run is terminated "
            f"until `cleanup` deletes it: {error}"
        )
        return False
    return workflow is not None and has_cleanup(workflow)


def has_cleanup(workflow: Mapping[str, Any]) -> bool:
    """Return whether the exit task `cleanup` of this package is part of a Workflow.

    KFP 2.17 accepts it only as an exit task, because it has a parameter of the type PipelineTaskFinalStatus.
    """
    parameters = ((workflow.get("spec") or {}).get("arguments") or {}).get("parameters") or ()
    containers = (one.get("value") for one in parameters if one["name"].startswith(_CONTAINER_PARAMETER))
    return any(_runs_cleanup(text) for text in containers if isinstance(text, str))


def _runs_cleanup(container: str) -> bool:
    try:
        found = json.loads(container)
    except ValueError:
        return False
    is_cleanup = (_FUNCTION_OPTION, "cleanup") in itertools.pairwise(found.get("args") or ())
    return is_cleanup and any("trainjob_kfp" in word for word in found.get("command") or ())


def is_being_terminated(workflow: Mapping[str, Any], now: datetime) -> bool:
    """Return whether a user or a deadline is terminating a Workflow.

    KFP 2.17 terminates a run with `activeDeadlineSeconds: 0`, Argo 4.0 itself with `shutdown`.
    """
    spec, started = workflow.get("spec") or {}, (workflow.get("status") or {}).get("startedAt")
    seconds = spec.get("activeDeadlineSeconds")
    if spec.get("shutdown") or seconds == 0:
        return True
    if seconds is None or not started:
        return False
    return bool(datetime.fromisoformat(started.replace("Z", "+00:00")) + timedelta(seconds=seconds) <= now)


class TerminationCheck:
    """Check at a signal whether the run is being terminated; a context manager."""

    def __init__(self, cluster: Cluster, pod: Mapping[str, Any]) -> None:
        """Create the check.

        Args:
            cluster: client of the launcher's cluster.
            pod: the launcher's own pod, which has a Workflow as its owner.
        """
        self._cluster, self._namespace = cluster, pod["metadata"]["namespace"]
        self._name = (find_workflow(pod) or {})["name"]
        self._is_being_terminated = False
        self._signal_read = SignalRead("workflow", self._read_workflow)

    def __enter__(self) -> TerminationCheck:
        """Start the thread that reads the Workflow."""
        self._signal_read.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the thread."""
        self._signal_read.close()

    def is_being_terminated(self) -> bool:
        """Return whether the run is known to be terminated.

        The Workflow is read, and the method waits up to 0.15 s for the response. It is safe to call this method in a
        signal handler.
        """
        self._signal_read.run()
        return self._is_being_terminated

    def _read_workflow(self) -> None:
        workflow = self._cluster.get_object(_WORKFLOWS, self._name, self._namespace)
        self._is_being_terminated = workflow is None or is_being_terminated(workflow, datetime.now(timezone.utc))


class RunOwner:
    """The run's Workflow as an owner of the TrainJobs that it should not leave running.

    If a TrainJob cannot be changed, a line on standard output says so, because the training itself is not affected.
    """

    def __init__(self, cluster: Cluster, reference: Mapping[str, Any] | None, *, after_end: bool = False) -> None:
        """Create the owner.

        Args:
            cluster: client of the cluster with the TrainJobs.
            reference: ownerReference to the Workflow; None if the TrainJobs may outlive it.
            after_end: whether a finished TrainJob is deleted with the Workflow, too.
        """
        self._cluster, self.reference, self._after_end = cluster, reference, after_end

    def add_to(self, job: JobReference) -> None:
        """Add the owner to an adopted TrainJob, and remove an earlier Workflow of the same run.

        RetryRun creates the Workflow again if it was deleted (KFP 2.17). Kubernetes may delete the TrainJob of the
        deleted Workflow before this change.
        """
        self._change(job, self._owners_at_adoption, "may continue after the run's Workflow is deleted")

    def remove_from(self, job: JobReference) -> None:
        """Remove the owner from a TrainJob that has ended, so that it stays as a record.

        With `after_end`, the owner remains.
        """
        if not self._after_end:
            self._change(job, self._owners_after_end, "is deleted along with the run's Workflow")

    def _owners_at_adoption(self, job: Mapping[str, Any]) -> Owners:
        owners = without_workflow(_owners_of(job), self._name)
        is_owned = self._after_end or not derive_verdict(job).phase.finished
        return [*owners, self.reference] if self.reference and is_owned else owners

    def _owners_after_end(self, job: Mapping[str, Any]) -> Owners:
        return without_workflow(_owners_of(job), self._name)

    @property
    def _name(self) -> str:
        return str(self.reference["name"]) if self.reference else ""

    def _change(self, job: JobReference, change: Callable[[Mapping[str, Any]], Owners], consequence: str) -> None:
        if self.reference is None:
            return
        try:
            change_owners(self._cluster, job, change)
        except ClusterError as error:
            print_line(f"warning: TrainJob {job} {consequence}: its owners cannot be changed: {error}")


def without_workflow(owners: Owners, name: str) -> list[Mapping[str, Any]]:
    """Return the owners except the Workflows of this name."""
    return [owner for owner in owners if (owner["kind"], owner["name"]) != ("Workflow", name)]


def change_owners(cluster: Cluster, job: JobReference, change: Callable[[Mapping[str, Any]], Owners]) -> None:
    """Replace the owners of a TrainJob that has not changed since it was read.

    So no owner is lost that another program adds at the same time. A TrainJob that does not exist any more is ignored.

    Args:
        cluster: the cluster of the TrainJob.
        job: reference to the TrainJob.
        change: returns the new owners of the TrainJob, as it was read.

    Raises:
        Conflict: other programs changed the TrainJob five times between a read and its change.
        ClusterError: a request failed or was denied.
    """
    for left in reversed(range(_PATCH_TRIES)):
        found = cluster.get_trainjob(job.name, job.namespace)
        if found is None or found["metadata"]["uid"] != job.uid:
            return
        wanted = [dict(owner) for owner in change(found)]
        if wanted == _owners_of(found):
            return
        version = found["metadata"]["resourceVersion"]
        try:
            cluster.patch_trainjob(
                job.name, job.namespace, job.uid, resource_version=version, ownerReferences=wanted or None
            )
        except NotFound:
            return
        except Conflict:
            if not left:
                raise
        else:
            return


def _owners_of(job: Mapping[str, Any]) -> Owners:
    owners: Owners = job["metadata"].get("ownerReferences") or []
    return owners
