"""Annotation of a TrainJob whose model was exported."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import ClusterError
from trainjob.manifest import labels


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
