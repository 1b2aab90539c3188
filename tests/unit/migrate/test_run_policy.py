"""Tests of the run policy of a v1 job: restarts, deadline, clean-up, queue."""

from __future__ import annotations

import pytest

from tests.unit.migrate.test_pod_template import pod_template
from tests.unit.migrate.v1_jobs import pytorch_job, with_spec
from trainjob.manifest import Dialect
from trainjob_migrate import FieldResult, convert

JOB = pytorch_job(command=["torchrun", "t.py"])


def with_policy(restart=None, **policy):
    job = with_spec(JOB, runPolicy=policy)
    replicas = {
        role: {**spec, **({"restartPolicy": restart} if restart else {})}
        for role, spec in JOB["spec"]["pytorchReplicaSpecs"].items()
    }
    return with_spec(job, pytorchReplicaSpecs=replicas)


def job_spec(conversion):
    return conversion.runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]


def topics(conversion):
    return [finding.topic for finding in conversion.findings]


def results_by_path(conversion, start):
    return {
        record.path.removeprefix(start): record.result for record in conversion.fields if record.path.startswith(start)
    }


@pytest.mark.parametrize("restart", [None, "OnFailure"])
def test_on_failure_needs_no_generated_runtime(restart):
    found = convert(with_policy(restart))
    assert found.runtime is None
    assert "restarts" in topics(found)


def test_a_backoff_limit_moves_to_the_job():
    found = convert(with_policy("OnFailure", backoffLimit=3))
    assert job_spec(found)["backoffLimit"] == 3
    assert "restarts" not in topics(found)


def test_with_never_the_first_failure_ends_the_job():
    found = convert(with_policy("Never", backoffLimit=3))
    assert pod_template(found)["spec"]["restartPolicy"] == "Never"
    assert job_spec(found)["backoffLimit"] == 0
    assert results_by_path(found, "spec.runPolicy.") == {"backoffLimit": FieldResult.DROPPED}


def test_exit_code_becomes_a_pod_failure_policy():
    found = convert(with_policy("ExitCode", backoffLimit=3))
    (rule,) = job_spec(found)["podFailurePolicy"]["rules"]
    assert rule == {"action": "FailJob", "onExitCodes": {"operator": "In", "values": list(range(1, 128))}}
    assert pod_template(found)["spec"]["restartPolicy"] == "Never"
    assert job_spec(found)["backoffLimit"] == 3
    [record] = [one for one in found.fields if one.path == "spec.pytorchReplicaSpecs.Worker.restartPolicy"]
    assert "torchrun, which exits with 1" in record.reason


def test_always_is_refused():
    found = convert(with_policy("Always"))
    assert {record.path.rpartition(".")[2] for record in found.blockers} == {"restartPolicy"}


def test_replicas_that_restart_differently_are_refused():
    job = with_policy("OnFailure")
    job["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolicy"] = "Never"
    (blocker,) = convert(job).blockers
    assert blocker.path == "spec.pytorchReplicaSpecs.Master.restartPolicy"


def test_a_deadline_is_converted():
    assert convert(with_policy(activeDeadlineSeconds=60)).train_job["spec"]["activeDeadlineSeconds"] == 60
    old = convert(with_policy(activeDeadlineSeconds=60), dialect=Dialect.V2_1)
    assert job_spec(old)["activeDeadlineSeconds"] == 60
    assert "activeDeadlineSeconds" not in old.train_job["spec"]
    assert convert(with_policy(activeDeadlineSeconds=0)).blockers


def test_suspend_and_managed_by_are_converted():
    spec = convert(with_policy(suspend=True, managedBy="kubeflow.org/training-operator")).train_job["spec"]
    assert (spec["suspend"], spec["managedBy"]) == (True, "trainer.kubeflow.org/trainjob-controller")
    assert convert(with_policy(managedBy="example.com/else")).blockers


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_clean_up_fields_are_dropped_with_a_finding(policy):
    found = convert(with_policy(cleanPodPolicy=policy, ttlSecondsAfterFinished=60))
    assert results_by_path(found, "spec.runPolicy.") == {
        "cleanPodPolicy": FieldResult.DROPPED,
        "ttlSecondsAfterFinished": FieldResult.DROPPED,
    }
    assert "clean-up" in topics(found)


def test_a_gang_has_one_finding_with_its_fields():
    policy = {"queue": "q", "minAvailable": 2, "minResources": {"cpu": "2"}, "scheduleTimeoutSeconds": 5}
    found = convert(with_policy(schedulingPolicy=policy))
    assert (found.runtime, found.blockers) == (None, ())
    assert results_by_path(found, "spec.runPolicy.schedulingPolicy.") == dict.fromkeys(policy, FieldResult.DROPPED)
    [finding] = [one for one in found.findings if one.topic == "gang"]
    assert "minAvailable, minResources, queue, scheduleTimeoutSeconds" in finding.what
    assert "podGroupPolicy" in finding.done


def test_a_priority_class_alone_is_no_gang():
    found = convert(with_policy(schedulingPolicy={"priorityClass": "high"}))
    assert pod_template(found)["spec"]["priorityClassName"] == "high"
    assert "gang" not in topics(found)


def test_an_empty_policy_has_no_effect():
    found = convert(with_policy(schedulingPolicy={}, backoffLimit=None))
    assert found.blockers == ()
    assert topics(found) == ["processes", "restarts"]


@pytest.mark.parametrize(
    "policy",
    [
        {"suspend": "yes"},
        {"cleanPodPolicy": "Some"},
        {"activeDeadlineSeconds": True},
        {"unheard": 1},
        {"backoffLimit": "many"},
        {"schedulingPolicy": {"unheard": 1}},
        {"schedulingPolicy": {"priorityClass": 1}},
    ],
    ids=str,
)
def test_invalid_values_are_refused(policy):
    found = convert(with_policy(**policy))
    assert len(found.blockers) == 1
    assert found.train_job is None
