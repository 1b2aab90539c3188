"""The failure policy of a JobSet, applied when one of its Jobs has failed; pure functions.

Source: JobSet 0.12 `pkg/controllers/failure_policy.go`. Not implemented: the restart of single Jobs, an alpha feature
that is off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from trainjob_local.controllers.conditions import find_condition
from trainjob_local.objects import Json

__all__ = ["FailureAction", "apply_failure_policy"]

_FAILED = "jobset failed due to one or more job failures"
_MAX_RESTARTS = "jobset failed due to reaching max number of restarts"


@dataclass(frozen=True)
class FailureAction:
    """The action that the failure policy requires: fail the JobSet or restart its Jobs.

    Attributes:
        reason: reason of the condition Failed, or of the restart's event.
        message: message of that condition or event; it names the Job that failed first.
        restart_reason: why the Jobs are restarted, as the reason of the condition RestartingJobSet; empty if the
            JobSet has failed.
        counts_towards_max: whether this restart counts towards maxRestarts.
    """

    reason: str
    message: str
    restart_reason: str = ""
    counts_towards_max: bool = False


def apply_failure_policy(jobset: Json, failed: Sequence[Json], label_key: str) -> FailureAction:
    """Apply the failure policy of a JobSet to its failed Jobs.

    Args:
        jobset: the JobSet.
        failed: its Jobs that have failed; at least one.
        label_key: key of the Job label that contains the name of the replicated job.
    """
    policy = jobset["spec"].get("failurePolicy")
    if policy is None:
        return FailureAction("FailedJobs", _with_job_name(_FAILED, _first_failed(failed)))
    for rule in policy.get("rules") or []:
        matching = [job for job in failed if _matches_rule(rule, job, label_key)]
        if matching:
            return _apply_action(
                rule["action"], f"FailurePolicy_{rule.get('name', '')}", _first_failed(matching), jobset
            )
    return _apply_action("RestartJobSet", "DefaultFailurePolicy", _first_failed(failed), jobset)


def _apply_action(action: str, restart_reason: str, job: Json, jobset: Json) -> FailureAction:
    message = _with_job_name(f"applying {action} failure policy action", job)
    if action == "FailJobSet":
        return FailureAction("FailJobSetFailurePolicyAction", message)
    counts = action == "RestartJobSet"
    counted = int((jobset.get("status") or {}).get("restartsCountTowardsMax", 0))
    if counts and counted >= int(jobset["spec"]["failurePolicy"].get("maxRestarts", 0)):
        return FailureAction("ReachedMaxRestarts", _with_job_name(_MAX_RESTARTS, job))
    return FailureAction(f"{action}FailurePolicyAction", message, restart_reason, counts)


def _matches_rule(rule: Json, job: Json, label_key: str) -> bool:
    failure = _failed_condition(job)
    reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
    targets = rule.get("targetReplicatedJobs")
    return (
        (not reasons or failure.get("reason") in reasons)
        and (not patterns or any(re.search(pattern, failure.get("message", "")) for pattern in patterns))
        and (not targets or job["metadata"]["labels"].get(label_key) in targets)
    )


def _first_failed(failed: Sequence[Json]) -> Json:
    return min(failed, key=lambda job: str(_failed_condition(job).get("lastTransitionTime", "")))


def _failed_condition(job: Json) -> Json:
    return find_condition((job.get("status") or {}).get("conditions") or [], "Failed") or {}


def _with_job_name(text: str, job: Json) -> str:
    return f"{text} (first failed job: {job['metadata']['name']})"
