"""Deletion of the TrainingRuntimes that the command created from a file and that no TrainJob uses any more.

Trainer 2.3 deletes a runtime at once, also while TrainJobs use it. It then refuses all changes of these TrainJobs.
Older Trainers wait for the last TrainJob. So a runtime is deleted only if no TrainJob refers to it, active or finished.

A TrainJob that is submitted at the same moment is refused, or waits for its runtime. Submitting its file again creates
the runtime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.client import Cluster
from trainjob.manifest import labels
from trainjob.status.nested_fields import get_mapping, get_str

__all__ = [
    "RuntimeReference",
    "RuntimeResult",
    "delete_runtime_unless_used",
    "find_reason_to_keep",
    "runtime_reference_of",
    "sweep_runtimes",
]

_RUNTIME_SELECTOR = ",".join(f"{name}={value}" for name, value in labels.MANAGED_BY.items())
_APPLIED_BY_KUBECTL = "kubectl.kubernetes.io/last-applied-configuration"
_MAX_LISTED = 3


@dataclass(frozen=True)
class RuntimeReference:
    """The kind, namespace and name of a training runtime.

    The namespace of a ClusterTrainingRuntime is empty.
    """

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"


@dataclass(frozen=True)
class RuntimeResult:
    """Result of the deletion of one runtime.

    Attributes:
        reference: the runtime.
        uid: its uid; empty if it does not exist.
        reason_to_keep: the reason why it was not deleted; empty if it was deleted, or would be in a dry run.
    """

    reference: RuntimeReference
    uid: str
    reason_to_keep: str = ""


def runtime_reference_of(job: Mapping[str, Any]) -> RuntimeReference:
    """Return the reference to the runtime of a TrainJob."""
    kind = get_str(job, "spec", "runtimeRef", "kind") or "ClusterTrainingRuntime"
    namespace = job["metadata"]["namespace"] if kind == "TrainingRuntime" else ""
    return RuntimeReference(kind, namespace, get_str(job, "spec", "runtimeRef", "name"))


def find_reason_to_keep(runtime: Mapping[str, Any], jobs: Iterable[Mapping[str, Any]]) -> str:
    """Return the reason why a TrainingRuntime must not be deleted, or an empty text.

    A TrainJob that is being deleted counts as a user: Trainer 2.3 does not release it without its runtime.

    Args:
        runtime: the TrainingRuntime, as the API returns it.
        jobs: the TrainJobs of its namespace.
    """
    metadata = runtime["metadata"]
    is_ours = labels.MANAGED_BY.items() <= get_mapping(metadata, "labels").items()
    # Also a copy that a user applied has our label.
    if not is_ours or _APPLIED_BY_KUBECTL in get_mapping(metadata, "annotations"):
        return "trainjob did not create it, or kubectl has applied it since"
    reference = RuntimeReference("TrainingRuntime", metadata["namespace"], metadata["name"])
    users = sorted(job["metadata"]["name"] for job in jobs if runtime_reference_of(job) == reference)
    if not users:
        return ""
    more = f" and {len(users) - _MAX_LISTED} more" if len(users) > _MAX_LISTED else ""
    return f"TrainJob {', '.join(users[:_MAX_LISTED])}{more} {'uses' if len(users) == 1 else 'use'} it"


def delete_runtime_unless_used(cluster: Cluster, reference: RuntimeReference) -> RuntimeResult:
    """Delete a TrainingRuntime if this project created it and no TrainJob uses it.

    Raises:
        PermissionDenied: the permission to get or delete TrainingRuntimes is missing.
        ClusterError: a request failed for another reason.
    """
    if reference.kind != "TrainingRuntime":
        return RuntimeResult(reference, "", "it belongs to all namespaces")
    metadata = {"name": reference.name, "namespace": reference.namespace}
    runtime = cluster.runtimes.get({"kind": reference.kind, "metadata": metadata})
    if runtime is None:
        return RuntimeResult(reference, "", "it no longer exists")
    jobs = cluster.list_trainjobs(reference.namespace, selector="")
    return _delete(cluster, runtime, jobs, dry_run=False)


def sweep_runtimes(
    cluster: Cluster, *, namespace: str = "", dry_run: bool = False, deleted: Collection[str] = ()
) -> Iterator[RuntimeResult]:
    """Delete the TrainingRuntimes that this project created and that no TrainJob uses.

    Args:
        cluster: the cluster.
        namespace: the namespace; empty means the connection's.
        dry_run: whether to change nothing.
        deleted: uids of TrainJobs that do not count, because a sweep would delete them; for a dry run.

    Yields:
        The runtimes that were deleted, or would be in a dry run.

    Raises:
        PermissionDenied: the permission to list or delete TrainingRuntimes is missing.
        ClusterError: a request failed for another reason.
    """
    runtimes = cluster.runtimes.list_objects(namespace or cluster.namespace, _RUNTIME_SELECTOR)
    jobs = cluster.list_trainjobs(namespace or cluster.namespace, selector="") if runtimes else []
    users = [job for job in jobs if job["metadata"]["uid"] not in deleted]
    for runtime in runtimes:
        result = _delete(cluster, runtime, users, dry_run=dry_run)
        if not result.reason_to_keep:
            yield result


def _delete(
    cluster: Cluster, runtime: Mapping[str, Any], jobs: Iterable[Mapping[str, Any]], *, dry_run: bool
) -> RuntimeResult:
    name, namespace, uid = (runtime["metadata"][part] for part in ("name", "namespace", "uid"))
    reason = find_reason_to_keep(runtime, jobs)
    if not reason and not dry_run and not cluster.runtimes.delete(name, namespace, uid):
        reason = "it no longer exists"
    return RuntimeResult(RuntimeReference("TrainingRuntime", namespace, name), uid, reason)
