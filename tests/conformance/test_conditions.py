"""Every condition that a TrainJob can have, with its reason and message."""

from __future__ import annotations

import pytest

from tests.conformance.histories import watch_states
from tests.conformance.runtimes import OWN_RUNTIME, create_own_runtime, never_restarted_job, replicated_job
from tests.support.trainjobs import conditions, is_finished, shell, train_job

COMPLETE = ("Complete", "True", "AllJobsCompleted", "jobset completed successfully")
FAILED = "jobset failed due to one or more job failures"


def test_complete(client, namespace):
    """A job that succeeds gets Complete with the reason AllJobsCompleted. Before that it has no condition."""
    states = watch_states(client, client.create(shell("sleep 0.5"), namespace))
    assert conditions(states[-1]) == [COMPLETE]
    assert [conditions(state) for state in states[:-1]] == [[]] * (len(states) - 1)


@pytest.mark.parametrize("failing", ["node", "dataset-initializer", "model-initializer"])
def test_failed(client, namespace, failing):
    """A job whose pod fails gets Failed with the reason FailedJobs. The message names the first failed Job."""
    initializers = ["dataset-initializer", "model-initializer"]
    steps = [never_restarted_job(name, f"exit {3 * (name == failing)}") for name in [*initializers, "node"]]
    steps[2]["dependsOn"] = [{"name": name, "status": "Complete"} for name in initializers]
    client.create(train_job(**create_own_runtime(client, namespace, *steps)), namespace)
    job = client.wait_for("TrainJob", namespace, "job", is_finished)
    message = f"{FAILED} (first failed job: job-{failing}-0)"
    assert conditions(job) == [("Failed", "True", "FailedJobs", message)]


def test_an_initializer_that_fails_ends_the_others(client, namespace):
    """If an initializer fails, the other Jobs and their pods are deleted. Its own failed pod is kept."""
    steps = [never_restarted_job("dataset-initializer", "exit 3"), never_restarted_job("model-initializer", "sleep 60")]
    last = replicated_job(depends_on=["dataset-initializer", "model-initializer"])
    client.create(train_job(**create_own_runtime(client, namespace, *steps, last)), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    client.wait_until_deleted("Job", namespace, "job-model-initializer-0")
    assert [job["metadata"]["name"] for job in client.list("Job", namespace)] == ["job-dataset-initializer-0"]
    (pod,) = client.list("Pod", namespace)
    assert (pod["metadata"]["name"][:26], pod["status"]["phase"]) == ("job-dataset-initializer-0-", "Failed")


def test_max_restarts(client, namespace):
    """With maxRestarts 1 in the runtime, all Jobs restart once. Then the job is Failed with ReachedMaxRestarts."""
    runtime = create_own_runtime(
        client, namespace, never_restarted_job("node", "exit 3"), failurePolicy={"maxRestarts": 1}
    )
    states = watch_states(client, client.create(train_job(**runtime), namespace))
    message = "jobset failed due to reaching max number of restarts (first failed job: job-node-0)"
    assert conditions(states[-1]) == [("Failed", "True", "ReachedMaxRestarts", message)]
    assert client.get("JobSet", namespace, "job")["status"]["restarts"] == 1
    (pod,) = client.list("Pod", namespace)  # of the last attempt; the earlier pods are deleted
    assert pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] == "1"


def test_a_rule_of_the_failure_policy(client, namespace):
    """A rule of the failure policy can fail the job at once, with the reason FailJobSetFailurePolicyAction."""
    rule = {"name": "givesUp", "action": "FailJobSet", "onJobFailureReasons": ["BackoffLimitExceeded"]}
    policy = {"maxRestarts": 3, "rules": [rule]}
    runtime = create_own_runtime(client, namespace, never_restarted_job("node", "exit 3"), failurePolicy=policy)
    client.create(train_job(**runtime), namespace)
    job = client.wait_for("TrainJob", namespace, "job", is_finished)
    message = "applying FailJobSet failure policy action (first failed job: job-node-0)"
    assert conditions(job) == [("Failed", "True", "FailJobSetFailurePolicyAction", message)]
    assert client.get("JobSet", namespace, "job")["status"]["restarts"] == 0


def test_success_after_a_restart(client, namespace):
    """A job can be Complete after a restart of all Jobs. Only its JobSet shows the restart."""
    script = "test $ATTEMPT = 1"
    attempt = {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"}}
    node = never_restarted_job("node", script)
    node["template"]["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "ATTEMPT", "valueFrom": attempt}]
    create_own_runtime(client, namespace, node, failurePolicy={"maxRestarts": 2})
    states = watch_states(client, client.create(train_job(**OWN_RUNTIME), namespace))
    assert conditions(states[-1]) == [COMPLETE]
    assert client.get("JobSet", namespace, "job")["status"]["restarts"] == 1
    assert not any(conditions(state) for state in states[:-1])


@pytest.mark.since("2.3")
def test_managed_by_another_controller(client, namespace):
    """A job with another managedBy gets no JobSet and no status."""
    client.create(shell("true", managedBy="kueue.x-k8s.io/multikueue"), namespace)
    client.create(shell("true", name="later"), namespace)
    client.wait_for("TrainJob", namespace, "later", is_finished)
    assert "status" not in client.get("TrainJob", namespace, "job")
    assert [item["metadata"]["name"] for item in client.list("JobSet", namespace)] == ["later"]
