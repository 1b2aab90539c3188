"""Annotations for a result that was delivered to the workflow engine, and for a model that was exported."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import ClusterError
from trainjob.lifecycle.identity import JobReference
from trainjob.manifest import labels


def mark_delivered(cluster: Cluster, reference: JobReference) -> None:
    """Record on a TrainJob that a step has ended with its result.

    Call it after the workflow engine has stored the end of the step. A crash before that leaves the TrainJob without
    the mark, and [submit][] with `adopt_undelivered` adopts it. A lost mark has the same effect.

    Args:
        cluster: the cluster of the TrainJob.
        reference: the TrainJob.

    Raises:
        ClusterError: a request failed or was denied, or the TrainJob does not exist any more.
    """
    delivered_at = {labels.DELIVERED: datetime.now(timezone.utc).isoformat()}
    cluster.patch_trainjob(reference.name, reference.namespace, reference.uid, annotations=delivered_at)


def mark_exported(cluster: Cluster, export_job: Mapping[str, Any]) -> None:
    """Annotate the source TrainJob of a complete export (blocking I/O).

    The source is the TrainJob whose own claim the export has read. Its model then counts as exported. Every waiter of
    the export writes the annotation. If it is missing, [trainjob.retention.sweep][] retains the source TrainJob. For a
    TrainJob without a source, nothing is sent.
    """
    source, meta = labels.get_annotation(export_job, labels.EXPORTS), export_job["metadata"]
    if not source:
        return
    with contextlib.suppress(ClusterError):
        job = cluster.get_trainjob(source, meta["namespace"])
        # A TrainJob that was created after the export has the same name and another model.
        if job is not None and job["metadata"]["creationTimestamp"] <= meta["creationTimestamp"]:
            marks = {labels.EXPORTED: labels.get_annotation(export_job, labels.MODEL)}
            cluster.patch_trainjob(source, meta["namespace"], job["metadata"]["uid"], annotations=marks)
