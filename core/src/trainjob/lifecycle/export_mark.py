"""Noting on a TrainJob that its model is elsewhere by now, so that it may be deleted."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from trainjob.client import Cluster
from trainjob.errors import ClusterError
from trainjob.manifest import labels


def note_export(cluster: Cluster, export: Mapping[str, Any]) -> None:
    """A TrainJob is complete: where it was the export of another one's own claim, note that on the other one.

    It is done again by whoever hears of the end again. Where it can't be done the other one stays, as
    [trainjob.retention.sweep][] takes its model for not exported.

    Args:
        cluster: where.
        export: the complete TrainJob.
    """
    source, meta = labels.annotation(export, labels.EXPORTS), export["metadata"]
    if not source:
        return
    with contextlib.suppress(ClusterError):
        job = cluster.get_trainjob(source, meta["namespace"])
        # One that was made after the export has the name again, and another model.
        if job is not None and job["metadata"]["creationTimestamp"] <= meta["creationTimestamp"]:
            marks = {labels.EXPORTED: labels.annotation(export, labels.MODEL)}
            cluster.patch_trainjob(source, meta["namespace"], job["metadata"]["uid"], annotations=marks)
