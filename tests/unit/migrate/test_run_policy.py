"""A v1 job's run policy: restarts, deadline, clean-up, queue."""

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
    return {line.path.removeprefix(start): line.fate for line in conversion.lines if line.path.startswith(start)}


@pytest.mark.parametrize("restart", [None, "OnFailure"])
def test_on_failure_is_what_a_runtime_does_anyway(restart):
    found = convert(with_policy(restart))
    assert found.runtime is None
    assert "restarts" in topics(found)


def test_a_limit_on_failures_is_the_jobs():
    found = convert(with_policy("OnFailure", backoffLimit=3))
    assert job_spec(found)["backoffLimit"] == 3
    assert "restarts" not in topics(found)


def test_never_means_one_failure_ends_it():
    found = convert(with_policy("Never", backoffLimit=3))
    assert pod_template(found)["spec"]["restartPolicy"] == "Never"
    assert job_spec(found)["backoffLimit"] == 0
    assert results_by_path(found, "spec.runPolicy.") == {"backoffLimit": FieldResult.DROPPED}


def test_exit_codes_are_the_jobs_failure_policy():
    found = convert(with_policy("ExitCode", backoffLimit=3))
    (rule,) = job_spec(found)["podFailurePolicy"]["rules"]
    assert rule == {"action": "FailJob", "onExitCodes": {"operator": "In", "values": list(range(1, 128))}}
    assert pod_template(found)["spec"]["restartPolicy"] == "Never"
    assert job_spec(found)["backoffLimit"] == 3
    assert "exit-codes" in topics(found)


def test_always_has_no_equivalent():
    found = convert(with_policy("Always"))
    assert {line.path.rpartition(".")[2] for line in found.blockers} == {"restartPolicy"}


def test_replicas_that_restart_differently_are_refused():
    job = with_policy("OnFailure")
    job["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolicy"] = "Never"
    (blocker,) = convert(job).blockers
    assert blocker.path == "spec.pytorchReplicaSpecs.Master.restartPolicy"


def test_a_deadline():
    assert convert(with_policy(activeDeadlineSeconds=60)).train_job["spec"]["activeDeadlineSeconds"] == 60
    old = convert(with_policy(activeDeadlineSeconds=60), dialect=Dialect.V2_1)
    assert job_spec(old)["activeDeadlineSeconds"] == 60
    assert "activeDeadlineSeconds" not in old.train_job["spec"]
    assert convert(with_policy(activeDeadlineSeconds=0)).blockers


def test_suspension_and_who_manages_it():
    spec = convert(with_policy(suspend=True, managedBy="kubeflow.org/training-operator")).train_job["spec"]
    assert (spec["suspend"], spec["managedBy"]) == (True, "trainer.kubeflow.org/trainjob-controller")
    assert convert(with_policy(managedBy="example.com/else")).blockers


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
def test_clean_up_is_told(policy):
    found = convert(with_policy(cleanPodPolicy=policy, ttlSecondsAfterFinished=60))
    assert results_by_path(found, "spec.runPolicy.") == {
        "cleanPodPolicy": FieldResult.DROPPED,
        "ttlSecondsAfterFinished": FieldResult.DROPPED,
    }
    assert "clean-up" in topics(found)


def test_a_gang_in_volcanos_queue():
    found = convert(with_policy(schedulingPolicy={"queue": "q", "minAvailable": 2, "scheduleTimeoutSeconds": 5}))
    spec = found.runtime["spec"]
    assert spec["podGroupPolicy"] == {"volcano": {}}
    assert spec["template"]["metadata"]["annotations"] == {"scheduling.volcano.sh/queue-name": "q"}
    assert results_by_path(found, "spec.runPolicy.schedulingPolicy.") == {
        "queue": FieldResult.MOVED,
        "minAvailable": FieldResult.DROPPED,
        "scheduleTimeoutSeconds": FieldResult.DROPPED,
    }


def test_a_gang_of_the_coscheduling_plugin():
    found = convert(with_policy(schedulingPolicy={"scheduleTimeoutSeconds": 5, "priorityClass": "high"}))
    assert found.runtime["spec"]["podGroupPolicy"] == {"coscheduling": {"scheduleTimeoutSeconds": 5}}
    assert pod_template(found)["spec"]["priorityClassName"] == "high"


def test_a_gang_that_says_no_more_is_told_about():
    found = convert(with_policy(schedulingPolicy={"minAvailable": 2, "minResources": {"cpu": "2"}}))
    assert found.runtime is None
    assert "gang" in topics(found)


def test_a_policy_that_says_nothing():
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
        {"schedulingPolicy": {"queue": 1}},
        {"schedulingPolicy": {"scheduleTimeoutSeconds": "5"}},
    ],
    ids=str,
)
def test_what_is_not_known_is_refused(policy):
    found = convert(with_policy(**policy))
    assert len(found.blockers) == 1
    assert found.train_job is None
