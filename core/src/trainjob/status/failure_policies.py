"""Detection of the rule of a runtime's failure policies that ended a TrainJob.

The status of a TrainJob names the first failed Job, but no rule. A rule of a Job's podFailurePolicy is named in the
Job's Warning event (Kubernetes 1.36, pkg/controller/job). The rule of a JobSet's failurePolicy is named nowhere. So
this module evaluates the rules as JobSet does (0.12, pkg/controllers/failure_policy.go).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainjob.status.nested_fields import get_int, get_list, get_mapping, get_str
from trainjob.status.verdict import Phase, Verdict

POD_POLICY_REASON = "PodFailurePolicy"
_JOBSET_RULE, _RESTARTS = "FailJobSetFailurePolicyAction", "ReachedMaxRestarts"
_FAILED = "FailedJobs"
_JOB_REASONS = (
    POD_POLICY_REASON,
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
)


def needs_jobset(verdict: Verdict) -> bool:
    """Return whether the JobSet has more details of this failure."""
    return verdict.phase is Phase.FAILED and verdict.reason in (_JOBSET_RULE, _RESTARTS)


def with_policy_rule(verdict: Verdict, warnings: Sequence[str], jobset: Mapping[str, Any] | None) -> Verdict:
    """Return the verdict on a failed TrainJob with the rule that ended it.

    Any other verdict is returned unchanged.

    Args:
        verdict: verdict from the TrainJob's status.
        warnings: Warning events about its Jobs, as `REASON: MESSAGE`.
        jobset: its JobSet; None if it is not known; see [needs_jobset][].
    """
    if verdict.phase is not Phase.FAILED:
        return verdict
    parsed = [warning.partition(": ") for warning in warnings]
    job_failures = [(reason, message) for reason, _, message in parsed if reason in _JOB_REASONS]
    pod_policy_messages = [message for reason, message in job_failures if reason == POD_POLICY_REASON]
    parts = [verdict.message]
    if needs_jobset(verdict) and jobset is not None:
        parts.append(_describe_jobset_rule(verdict, job_failures, jobset))
    parts += pod_policy_messages[-1:]
    by_pod_policy = pod_policy_messages and verdict.reason == _FAILED
    reason = POD_POLICY_REASON if by_pod_policy else verdict.reason
    return replace(verdict, reason=reason, message="; ".join(part for part in parts if part))


def _describe_jobset_rule(verdict: Verdict, job_failures: Sequence[tuple[str, str]], jobset: Mapping[str, Any]) -> str:
    policy = get_mapping(jobset, "spec", "failurePolicy")
    if verdict.reason == _RESTARTS:
        allowed = get_int(policy, "maxRestarts")
        return f"restarted {get_int(jobset, 'status', 'restarts')} times, maxRestarts is {allowed}"
    for rule in get_list(policy, "rules"):
        if any(_rule_applies(rule, verdict.step, *job) for job in job_failures[-1:] or [("", "")]):
            return f"rule {get_str(rule, 'name')} of the runtime's failurePolicy: {get_str(rule, 'action')}"
    return ""


def _rule_applies(rule: Mapping[str, Any], step: str, reason: str, message: str) -> bool:
    def allows(name: str, value: str) -> bool:
        wanted = rule.get(name)
        return not wanted or (isinstance(wanted, list | tuple) and value in wanted)

    patterns = rule.get("onJobFailureMessagePatterns") or []
    found = not patterns
    for pattern in patterns if isinstance(patterns, list | tuple) else ():
        with contextlib.suppress(re.error, TypeError):  # the pattern is a regular expression of Go
            found = found or bool(re.search(pattern, message))
    return found and allows("onJobFailureReasons", reason) and allows("targetReplicatedJobs", step)
