"""Tests of the detection of the failure policy rule that ended a TrainJob."""

from __future__ import annotations

import pytest

from trainjob.status import Category, Evidence, FinalPods, Phase, Verdict, build_outcome
from trainjob.status.failure_policies import needs_jobset, with_policy_rule

JOB = {"metadata": {"name": "tune", "namespace": "ml", "uid": "u"}}
EXIT_CODE_MESSAGE = (
    "Container node for pod ml/tune-node-0-0-x failed with exit code 42 matching FailJob rule at index 1"
)
DISRUPTION_MESSAGE = "Pod ml/tune-node-0-0-x has condition DisruptionTarget matching FailJob rule at index 0"
RULES = [
    {"name": "other", "action": "FailJobSet", "targetReplicatedJobs": ["launcher"]},
    {"name": "broken", "action": "FailJobSet", "onJobFailureMessagePatterns": ["("]},
    {"name": "lost", "action": "FailJobSet", "onJobFailureMessagePatterns": ["DisruptionTarget"]},
    {"name": "final", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]},
    {"name": "rest", "action": "FailJobSet"},
]
JOBSET = {"spec": {"failurePolicy": {"maxRestarts": 3, "rules": RULES}}, "status": {"restarts": 2}}


def failed_verdict(reason, message="jobset failed", step="node"):
    return Verdict(Phase.FAILED, reason, message, step)


def test_a_rule_of_a_pod_failure_policy_is_the_reason():
    verdict = with_policy_rule(
        failed_verdict("FailedJobs"), ["FailedCreate: no", f"PodFailurePolicy: {EXIT_CODE_MESSAGE}"], None
    )
    assert (verdict.reason, verdict.message) == ("PodFailurePolicy", f"jobset failed; {EXIT_CODE_MESSAGE}")


@pytest.mark.parametrize(
    ("warnings", "step", "rule"),
    [
        ([f"PodFailurePolicy: {EXIT_CODE_MESSAGE}"], "node", "final"),
        ([f"PodFailurePolicy: {DISRUPTION_MESSAGE}"], "node", "lost"),
        (["BackoffLimitExceeded: Job has reached the specified backoff limit"], "node", "rest"),
        ([], "launcher", "other"),
    ],
)
def test_the_first_rule_of_a_jobset_that_applies_is_named(warnings, step, rule):
    verdict = with_policy_rule(failed_verdict("FailJobSetFailurePolicyAction", step=step), warnings, JOBSET)
    assert f"rule {rule} of the runtime's failurePolicy: FailJobSet" in verdict.message
    assert verdict.reason == "FailJobSetFailurePolicyAction"


def test_restarts_are_counted():
    verdict = with_policy_rule(failed_verdict("ReachedMaxRestarts"), [], JOBSET)
    assert verdict.message == "jobset failed; restarted 2 times, maxRestarts is 3"


@pytest.mark.parametrize("jobset", [None, {}, {"spec": {"failurePolicy": {"rules": "x"}}}, {"spec": 1, "status": []}])
def test_without_the_jobset_the_verdict_is_unchanged(jobset):
    verdict = with_policy_rule(failed_verdict("FailJobSetFailurePolicyAction"), [], jobset)
    assert verdict == failed_verdict("FailJobSetFailurePolicyAction")
    assert with_policy_rule(Verdict(Phase.DELETED, "NotFound"), ["PodFailurePolicy: x"], jobset) == Verdict(
        Phase.DELETED, "NotFound"
    )


def test_the_jobset_is_needed_only_for_its_own_rules():
    reasons = [
        reason
        for reason in ("FailedJobs", "ReachedMaxRestarts", "DeadlineExceeded")
        if needs_jobset(failed_verdict(reason))
    ]
    assert reasons == ["ReachedMaxRestarts"]


@pytest.mark.parametrize(
    ("reason", "category", "retryable"),
    [
        ("Error", Category.POLICY, False),
        ("OOMKilled", Category.OUT_OF_MEMORY, False),
        ("Evicted", Category.INFRASTRUCTURE, True),
    ],
)
def test_the_reason_of_the_pod_has_priority_over_the_rule(reason, category, retryable):
    ended = {"name": "node", "state": {"terminated": {"exitCode": 42, "reason": reason}}}
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "node"}
    pod = {"metadata": {"labels": labels}, "status": {"containerStatuses": [ended]}}
    outcome = build_outcome(JOB, failed_verdict("PodFailurePolicy"), Evidence(FinalPods([pod])))
    assert (outcome.category, outcome.retryable) == (category, retryable)
