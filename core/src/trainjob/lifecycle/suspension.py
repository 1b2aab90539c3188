"""Suspension and resumption of a TrainJob."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import Conflict, NotFound
from trainjob.manifest import labels
from trainjob.spec.resources import is_stock_builtin
from trainjob.status import derive_verdict
from trainjob.status.nested_fields import get_mapping, get_str
from trainjob.status.verdict import QUEUE_LABEL


def set_suspended(cluster: Cluster, name: str, namespace: str, *, suspended: bool) -> bool:
    """Suspend or resume a TrainJob; safe to repeat.

    A suspended TrainJob loses its pods and retains its claims and finished initializers. After it is resumed, the
    training starts from the beginning (Trainer 2.3). It stays suspended until it is resumed.

    Returns:
        True if the TrainJob was changed. False if it has finished, or is already suspended or resumed as requested.

    Raises:
        NotFound: the TrainJob does not exist.
        Conflict: the TrainJob is in a Kueue queue, and Kueue reverts the change within 0.2 s (Kueue 0.17). Or it uses a
            stock runtime with a built-in trainer, whose JobSet cannot be changed. Or another TrainJob of its name has
            replaced it since it was read.
        ClusterError: a request failed or was denied.
    """
    job = cluster.get_trainjob(name, namespace)
    if job is None:
        raise NotFound(f"there is no TrainJob {namespace}/{name}", status=404, reason="NotFound")
    if not _needs_change(job, suspended=suspended):
        return False
    annotations = {labels.SUSPENDED: None}  # the user has decided, so an adoption must not resume it
    cluster.patch_trainjob(name, namespace, job["metadata"]["uid"], suspend=suspended, annotations=annotations)
    return True


def needs_suspension(job: Mapping[str, Any]) -> bool:
    """Return whether a TrainJob has neither finished nor is suspended.

    Raises:
        Conflict: the TrainJob can't be suspended; see [set_suspended][].
    """
    return _needs_change(job, suspended=True)


def _needs_change(job: Mapping[str, Any], *, suspended: bool) -> bool:
    if derive_verdict(job).phase.finished or bool(get_mapping(job, "spec").get("suspend")) == suspended:
        return False
    meta = job["metadata"]
    job_name = f"{meta['namespace']}/{meta['name']}"
    if queue := (meta.get("labels") or {}).get(QUEUE_LABEL):
        raise Conflict(
            f"TrainJob {job_name} is in the Kueue queue {queue}, and Kueue decides when it runs",
            hint='change "spec.active" of its Workload (label "kueue.x-k8s.io/job-uid"), or stop the queue',
        )
    runtime, kind = get_str(job, "spec", "runtimeRef", "name"), get_str(job, "spec", "runtimeRef", "kind")
    if is_stock_builtin(runtime, kind or "ClusterTrainingRuntime"):
        raise Conflict(
            f"TrainJob {job_name} uses the stock runtime {runtime}. Its JobSet can't be changed after "
            "its creation, so suspending or resuming it would not affect its pods (Trainer 2.3, JobSet 0.12)",
            hint="cancel it; a TrainJob with a workspace on another runtime can be suspended",
        )
    return True
