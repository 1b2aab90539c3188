"""Notices about missing output of a whole TrainJob, and reasons of notices about a container.

[trainjob.client.log_lines.LoggedContainer][] has the notices about a container.
"""

from __future__ import annotations

from trainjob.client.log_lines import LogNotice
from trainjob.status.pods import JOBSET_LABEL

POD_IS_GONE = "the pod is gone, and its log with it"
ONE_PREVIOUS_LOG = "Kubernetes keeps the log of one earlier run only"


def pods_are_unknown(trainjob: str, namespace: str, reason: str) -> LogNotice:
    """Return the notice that output of any container of a TrainJob may be missing."""
    selector = f"{JOBSET_LABEL}={trainjob}"
    return LogNotice(
        "",
        f"output of TrainJob {namespace}/{trainjob} may be missing from its beginning: {reason}; while its pods exist, "
        f"read it with: kubectl logs -l {selector} -n {namespace} --all-containers --prefix --tail=-1",
    )


def pods_are_not_watched(trainjob: str, namespace: str, reason: str) -> LogNotice:
    """Return the notice that the watch of a TrainJob's pods has failed."""
    return LogNotice(
        "",
        f"the pods of TrainJob {namespace}/{trainjob} can't be watched: {reason}; until the watch succeeds, which is "
        "tried again every few minutes, new log lines are missing, and restarts and the reasons of failing starts are "
        "not seen",
    )
