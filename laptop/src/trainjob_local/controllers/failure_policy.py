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

__all__ = ["Verdict", "verdict_on"]

_FAILED = "jobset failed due to one or more job failures"
_MAX_RESTARTS = "jobset failed due to reaching max number of restarts"


@dataclass(frozen=True)
class Verdict:
    """The action that the failure policy requires: fail the JobSet or restart its Jobs.

    Attributes:
        reason: reason of the condition Failed, or of the restart's event.
        message: message of that condition or event; it names the Job that failed first.
        restart: why the Jobs are restarted, as the reason of the condition RestartingJobSet; empty if the JobSet has
            failed.
        counts: whether this restart counts towards maxRestarts.
    """

    reason: str
    message: str
    restart: str = ""
    counts: bool = False


def verdict_on(jobset: Json, failed: Sequence[Json], replicated: str) -> Verdict:
    """Apply the failure policy of a JobSet to its failed Jobs.

    Args:
        jobset: the JobSet.
        failed: its Jobs that have failed; at least one.
        replicated: key of the Job label that holds the name of the replicated job.
    """
    policy = jobset["spec"].get("failurePolicy")
    if policy is None:
        return Verdict("FailedJobs", _named(_FAILED, _first(failed)))
    for rule in policy.get("rules") or []:
        matching = [job for job in failed if _applies(rule, job, replicated)]
        if matching:
            return _carried_out(rule["action"], f"FailurePolicy_{rule.get('name', '')}", _first(matching), jobset)
    return _carried_out("RestartJobSet", "DefaultFailurePolicy", _first(failed), jobset)


def _carried_out(action: str, why: str, job: Json, jobset: Json) -> Verdict:
    message = _named(f"applying {action} failure policy action", job)
    if action == "FailJobSet":
        return Verdict("FailJobSetFailurePolicyAction", message)
    counts = action == "RestartJobSet"
    counted = int((jobset.get("status") or {}).get("restartsCountTowardsMax", 0))
    if counts and counted >= int(jobset["spec"]["failurePolicy"].get("maxRestarts", 0)):
        return Verdict("ReachedMaxRestarts", _named(_MAX_RESTARTS, job))
    return Verdict(f"{action}FailurePolicyAction", message, why, counts)


def _applies(rule: Json, job: Json, replicated: str) -> bool:
    failure = _failure(job)
    reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
    targets = rule.get("targetReplicatedJobs")
    return (
        (not reasons or failure.get("reason") in reasons)
        and (not patterns or any(re.search(pattern, failure.get("message", "")) for pattern in patterns))
        and (not targets or job["metadata"]["labels"].get(replicated) in targets)
    )


def _first(failed: Sequence[Json]) -> Json:
    return min(failed, key=lambda job: str(_failure(job).get("lastTransitionTime", "")))


def _failure(job: Json) -> Json:
    return find_condition((job.get("status") or {}).get("conditions") or [], "Failed") or {}


def _named(text: str, job: Json) -> str:
    return f"{text} (first failed job: {job['metadata']['name']})"
