"""Collection of the evidence about a TrainJob at its end.

It is collected once, for waits and for descriptions. No error of the API server ends it: the outcome is then built from
what is known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from typing import Any

from trainjob.client import Cluster, ObjectEvent, list_warning_lines, read_failure_log_tail
from trainjob.client.diagnostics import read_last_lines
from trainjob.client.log_notices import pods_are_unknown
from trainjob.errors import ClusterError
from trainjob.frameworks.log_parser import JobLogParser
from trainjob.lifecycle.job_logs import JobLogs
from trainjob.status import ContainerFailure, Evidence, FinalPods, Phase, Progress, Verdict, compute_usage
from trainjob.status.failure_policies import needs_jobset
from trainjob.status.failure_rules import Category, find_category
from trainjob.status.log_reasons import find_killed_process
from trainjob.status.nested_fields import get_str, parse_time, true_conditions
from trainjob.status.pods import NODE, belongs_to_job, container_statuses, rank_of, reduce_to_evidence, step_of
from trainjob.status.trainer_status import read_trainer_status
from trainjob.status.verdict import had_pods
from trainjob.status.watchdog import RankEnd

_LOG_SECONDS = 10.0  # how long to continue to read the logs after the end of the TrainJob
_NONE: Mapping[str, Any] = {}
_CAUSE_OF_FAILURE = (-60.0, 5.0)  # seconds from a failure to its cause; the clocks of nodes differ
_PROGRESS_LINES = 100  # in which the last progress of a training is, before its summary
Pod = Mapping[str, Any]


def list_final_pods(
    cluster: Cluster, job: Mapping[str, Any], seen: Mapping[str, Pod] = _NONE, deleted: Mapping[str, Pod] = _NONE
) -> FinalPods:
    """List the pods of a TrainJob after its end (blocking I/O).

    A watch of the pods may lag behind that of the TrainJobs, or not have started. Pods that it has reported are `seen`,
    and last states of those whose deletion it has reported are `deleted`, by uid.
    """
    name, namespace = get_str(job, "metadata", "name"), get_str(job, "metadata", "namespace")
    try:
        listed = [pod for pod in cluster.list_pods(name, namespace) if belongs_to_job(pod, job)]
    except ClusterError as error:
        reason = f"its pods can't be listed: {error.message}"
        return FinalPods(list(seen.values()), list(deleted.values()), reason)
    uids, now = {get_str(pod, "metadata", "uid") for pod in listed}, datetime.now(timezone.utc)
    unseen_deletions = {uid: reduce_to_evidence(pod, now) for uid, pod in seen.items() if uid not in uids}
    gone = [*deleted.values(), *unseen_deletions.values()]
    is_unknown = not (listed or gone) and had_pods(job)
    return FinalPods(listed, gone, "its pods do not exist in this cluster any more" if is_unknown else "")


def collect_evidence(
    cluster: Cluster,
    job: Mapping[str, Any],
    verdict: Verdict,
    pods: FinalPods,
    logs: JobLogs | None = None,
    *,
    only_ended: bool = False,
) -> Evidence:
    """Collect the evidence about the end of a TrainJob, before it is deleted (blocking I/O).

    Followed logs are read to their ends, or only those that have an end if the caller is about to end the TrainJob.
    Without them, only the last lines are read: of the container that failed first, or of a complete training that has
    reported no progress elsewhere.
    """
    now = datetime.now(timezone.utc).replace(microsecond=0)  # the precision of Kubernetes
    usage = compute_usage(job, pods.all, now)
    name, namespace, created = (get_str(job, "metadata", key) for key in ("name", "namespace", "creationTimestamp"))
    events, jobset, tail = list[str](), None, tuple[str, ...]()
    first = pods.find_first_failure(verdict)
    if verdict.phase is not Phase.COMPLETE:
        events = list_warning_lines(cluster, namespace, name, pods.all, since=created)
        jobset = _get_jobset(cluster, job, verdict)
        tail = _read_tail(cluster, namespace, first)
    if logs is None:
        progress = None
        reported = read_trainer_status(job)
        if verdict.phase is Phase.COMPLETE and not (reported and reported.step):
            progress = read_progress(cluster, [pod for pod in pods.existing if rank_of(pod) == 0])
        return Evidence(pods, events, jobset, tail, progress, usage)
    if pods.unknown_because:
        logs.report(pods_are_unknown(name, namespace, pods.unknown_because))
    for pod in pods.existing:
        logs.observe(ObjectEvent(pod))
    logs.finish(_LOG_SECONDS, only_ended=only_ended, failure=first if only_ended else None)
    tail = tail or _get_received_tail(logs, first, pods)
    watchdogs, ends = tuple(logs.watchdogs.values()), [end for _, end in logs.rank_ends]
    killed = find_killed_process(tail, logs.list_tails(), _list_ends_before(first, logs))
    return Evidence(pods, events, jobset, tail, logs.progress, usage, watchdogs, logs.warnings, killed, ends)


def _get_jobset(cluster: Cluster, job: Mapping[str, Any], verdict: Verdict) -> Mapping[str, Any] | None:
    """Return the JobSet if it has more details of the failure; None if it is not known.

    It also shows whether a failed TrainJob may start again. At its deadline, the JobSet is deleted, and the failure is
    final (Trainer 2.2 and later).
    """
    has_failed = verdict.phase is Phase.FAILED and Phase.FAILED.value in true_conditions(job)
    may_start_again = has_failed and find_category(verdict.reason) is not Category.DEADLINE
    with contextlib.suppress(ClusterError):
        if needs_jobset(verdict) or may_start_again:
            return cluster.get_jobset(get_str(job, "metadata", "name"), get_str(job, "metadata", "namespace"))
    return None


def _read_tail(cluster: Cluster, namespace: str, failure: ContainerFailure | None) -> tuple[str, ...]:
    if failure is None:
        return ()
    lines = read_failure_log_tail(cluster, namespace, failure) if failure.exit_code is not None else []
    return tuple(lines or failure.message.splitlines())  # a command that could not start has no log


def _get_received_tail(logs: JobLogs, first: ContainerFailure | None, pods: FinalPods) -> tuple[str, ...]:
    """Return the log lines received from the first failed rank, else from another failed rank.

    They replace a log that was deleted with its pod. The Job controller deletes all pods that it has not seen fail yet,
    and the first failed pod may be among them.
    """
    if first is None or first.exit_code is None:
        return ()
    for failure in (first, *pods.failures):
        if lines := logs.received_tail(failure):
            source = f"{failure.step}-{failure.rank}"
            return lines if failure is first else tuple(f"[{source}] {line}" for line in lines)
    return ()


def _list_ends_before(failure: ContainerFailure | None, logs: JobLogs) -> list[RankEnd]:
    """Return the ends of ranks of other pods shortly before a failure.

    Earlier ones were of another attempt in the same pods, and later ones follow from the failure. A launcher also ends
    the ranks of its own pod after a failure, and it reports the first one itself.
    """
    ended = parse_time(failure.ended) if failure else None
    if failure is None or ended is None:
        return []
    first, last = (ended.timestamp() + seconds for seconds in _CAUSE_OF_FAILURE)
    return [
        end
        for line, end in logs.rank_ends
        if line.log and line.log.pod != failure.pod and line.time and first <= line.time[0] <= last
    ]


def read_progress(cluster: Cluster, pods: Iterable[Pod]) -> Progress | None:
    """Return the progress in the last lines of a training's pods (blocking I/O)."""
    parser, progress = JobLogParser(), None
    for pod in pods:
        for status in container_statuses(pod) if step_of(pod) == NODE else ():
            namespace, name = get_str(pod, "metadata", "namespace"), get_str(status, "name")
            for line in read_last_lines(cluster, namespace, pod, name, _PROGRESS_LINES):
                progress = parser.feed(line.text) or progress
    return progress
