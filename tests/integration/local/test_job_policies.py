"""Tests of a Job's podFailurePolicy and successPolicy, as Kubernetes 1.36 applies them."""

from __future__ import annotations

import pytest

from trainjob_local.controllers.job_policies import find_fail_job_message, find_success_message, is_ignored

CODES = {"operator": "In", "values": [42, 43]}
LOST = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
DISRUPTION_MESSAGE = "Pod ml/p has condition DisruptionTarget matching FailJob rule at index 0"
FINAL = {"action": "FailJob", "onExitCodes": CODES}
OTHERS = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [1], "containerName": "node"}}


def job(*rules, success=()):
    return {"spec": {"podFailurePolicy": {"rules": list(rules)}, "successPolicy": {"rules": list(success)}}}


def pod(code=0, *, lost=False, container="node"):
    ended = {"name": container, "state": {"terminated": {"exitCode": code}}}
    conditions = [{"type": "DisruptionTarget", "status": "True"}] if lost else []
    meta = {"namespace": "ml", "name": "p"}
    return {"metadata": meta, "status": {"containerStatuses": [ended], "conditions": conditions}}


def exit_code_message(code, index, container="node"):
    return f"Container {container} for pod ml/p failed with exit code {code} matching FailJob rule at index {index}"


@pytest.mark.parametrize(
    ("rules", "failed", "said"),
    [
        ([], pod(42), ""),
        ([FINAL], pod(42), exit_code_message(42, 0)),
        ([FINAL], pod(1), ""),
        ([LOST, FINAL], pod(43), exit_code_message(43, 1)),
        ([LOST, FINAL], pod(43, lost=True), ""),
        ([{**LOST, "action": "FailJob"}], pod(lost=True), DISRUPTION_MESSAGE),
        ([{**FINAL, "action": "Count"}, OTHERS], pod(42), ""),
        ([OTHERS], pod(42), exit_code_message(42, 0)),
        ([OTHERS], pod(1), ""),
        ([OTHERS], pod(42, container="side"), ""),
        ([OTHERS], pod(0), ""),
    ],
)
def test_only_the_first_rule_that_a_pod_matches_counts(rules, failed, said):
    assert find_fail_job_message(job(*rules), [pod(1), failed]) == said


def test_a_pod_is_ignored_only_if_its_first_rule_ignores_it():
    assert is_ignored(job(LOST, FINAL), pod(42, lost=True))
    assert not is_ignored(job(FINAL, LOST), pod(42, lost=True))
    assert not is_ignored(job(), pod(42))


@pytest.mark.parametrize(
    ("rules", "done", "said"),
    [
        ([], {0}, ""),
        ([{"succeededIndexes": "0"}], {0}, "Matched rules at index 0"),
        ([{"succeededIndexes": "0"}], {1, 2}, ""),
        ([{"succeededIndexes": "0,2-3"}], {0, 2}, ""),
        ([{"succeededIndexes": "0,2-3", "succeededCount": 2}], {0, 2}, "Matched rules at index 0"),
        ([{"succeededIndexes": "5"}, {"succeededCount": 2}], {0, 1}, "Matched rules at index 1"),
        ([{"succeededCount": 2}], {0}, ""),
        ([{"succeededIndexes": "0"}], set(), ""),
    ],
)
def test_a_success_rule_is_met_by_completed_indexes(rules, done, said):
    assert find_success_message(job(success=rules), done) == said
