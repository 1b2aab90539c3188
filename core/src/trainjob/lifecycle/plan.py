"""Rules that decide what a submission does with the TrainJobs of its run key; no I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.lifecycle.identity import attempt_of
from trainjob.manifest import labels
from trainjob.status import Phase, derive_verdict
from trainjob.status.failed_mark import awaits_deletion, may_have_running_pods
from trainjob.status.nested_fields import get_mapping, get_str


@dataclass(frozen=True)
class Plan:
    """Next actions of a submission.

    Attributes:
        adopt: the TrainJob to adopt; None to create one.
        delete: the TrainJobs to delete, because their request has changed or another TrainJob does the same work.
        terminating: the TrainJobs that are being deleted; wait until they do not exist any more.
        attempt: the number of the adopted attempt, or of the next one.
        notice: log line that says why a TrainJob is adopted although its request has changed, or the work was requested
            again; else empty.
    """

    adopt: Mapping[str, Any] | None
    delete: Sequence[Mapping[str, Any]]
    terminating: Sequence[Mapping[str, Any]]
    attempt: int
    notice: str = ""


def plan_submission(
    jobs: Sequence[Mapping[str, Any]],
    spec_hash: str,
    since: str = "",
    renewal: str = "",
    training_hash: str = "",
    is_kept: Callable[[Mapping[str, Any]], bool] = lambda _: False,
) -> Plan:
    """Decide which TrainJob of one run key to adopt, and which ones to delete.

    An unfinished TrainJob with the same spec hash is adopted, because the caller may have crashed before this try. A
    succeeded one is adopted unless the work has to be done again. So is one that failed, if its waiter has died before
    it could report the failure and delete it. The function does no I/O, and the order of `jobs` does not matter.

    With `training_hash`, a succeeded TrainJob with another renewal or spec hash is adopted, too, if it has this
    training hash and no step has ended with its result. It must be the newest attempt, and no other may be active,
    because that one may have overwritten its output.

    Args:
        jobs: every TrainJob that carries the run key.
        spec_hash: the spec hash of the current request.
        since: RFC 3339 time in UTC; a succeeded TrainJob that was created earlier is not adopted.
        renewal: a succeeded TrainJob with another renewal is not adopted.
        training_hash: the training hash of the current request; empty if only the same request is adopted.
        is_kept: function that returns whether an active TrainJob with another spec hash is adopted, too, because it
            runs already and would have the same result.
    """
    ordered = sorted(jobs, key=attempt_of)
    terminating = [job for job in ordered if get_mapping(job, "metadata").get("deletionTimestamp")]
    active = [job for job in ordered if job not in terminating and not derive_verdict(job).phase.finished]
    marked_failed = [job for job in ordered if job not in terminating and may_have_running_pods(job)]
    same = [job for job in active if _spec_hash_of(job) == spec_hash]
    if chosen := next(iter(same), None) or next(filter(is_kept, active), None):
        others = [job for job in active if job is not chosen] + marked_failed
        notice = "" if same else _format_kept_notice(chosen)
        return Plan(chosen, others, terminating, attempt_of(chosen), notice)
    recent = [job for job in ordered if get_str(job, "metadata", "creationTimestamp") >= since]
    same = [
        job
        for job in recent
        if labels.get_annotation(job, labels.RENEWAL) == renewal and _spec_hash_of(job) == spec_hash
    ]
    succeeded = [job for job in same if derive_verdict(job).phase is Phase.COMPLETE]
    unreported = [job for job in same if job in marked_failed and awaits_deletion(job)]
    if ended := succeeded or unreported:
        superfluous = [job for job in active + marked_failed if job is not ended[-1]]
        return Plan(ended[-1], superfluous, terminating, attempt_of(ended[-1]))
    newest = max(ordered, key=_age_of, default=None)
    if newest in recent and not active and not marked_failed and _is_undelivered(newest, training_hash):
        return Plan(newest, [], terminating, attempt_of(newest), _format_notice(newest, spec_hash, renewal))
    return Plan(None, active + marked_failed, terminating, max(map(attempt_of, ordered), default=0) + 1)


def _age_of(job: Mapping[str, Any]) -> tuple[int, str, str]:
    return attempt_of(job), get_str(job, "metadata", "creationTimestamp"), get_str(job, "metadata", "uid")


def _is_undelivered(job: Mapping[str, Any], training_hash: str) -> bool:
    """Return whether a TrainJob of this training has succeeded and was not delivered."""
    return (
        bool(training_hash)
        and labels.get_annotation(job, labels.TRAINING_HASH) == training_hash
        and not labels.get_annotation(job, labels.DELIVERED)
        and not get_str(job, "metadata", "deletionTimestamp")
        and derive_verdict(job).phase is Phase.COMPLETE
    )


def _format_notice(job: Mapping[str, Any], spec_hash: str, renewal: str) -> str:
    name, namespace = get_str(job, "metadata", "name"), get_str(job, "metadata", "namespace")
    reasons = ["the work was requested again"] if labels.get_annotation(job, labels.RENEWAL) != renewal else []
    if (earlier := _spec_hash_of(job)) != spec_hash:
        reasons.append(
            f"its request has changed (spec hash {earlier} -> {spec_hash}), but only in fields that do not change the "
            "result, such as resources, limits or labels"
        )
    return (
        f"TrainJob {namespace}/{name} has succeeded, and no step has ended with its result yet, so it is adopted: "
        f"{', and '.join(reasons)}. To repeat the work, run `kubectl delete trainjob {name} -n {namespace}` and start "
        "the step again; `adopt_undelivered=False` always repeats it"
    )


def _format_kept_notice(job: Mapping[str, Any]) -> str:
    name, namespace = get_str(job, "metadata", "name"), get_str(job, "metadata", "namespace")
    return (
        f"TrainJob {namespace}/{name} runs already, and is not replaced: its request has changed only in fields that "
        "change neither its result nor its resources. Those of its metadata are changed; the others, such as deadline, "
        "placement and variables, take effect in its next attempt. To apply them now, delete it: "
        f"kubectl delete trainjob {name} -n {namespace}"
    )


def _spec_hash_of(job: Mapping[str, Any]) -> str:
    return labels.get_annotation(job, labels.SPEC_HASH)
