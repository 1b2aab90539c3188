"""Suspension and resumption of TrainJobs: deleted and kept objects, and the status."""

from __future__ import annotations

import pytest

from tests.conformance.histories import is_subsequence, job_counter_states, watch_states
from tests.conformance.runtimes import create_own_runtime, replicated_job
from tests.support.trainjobs import conditions, counters, has_condition, is_finished, list_pods, shell, train_job

SUSPENDED = ("Suspended", "True", "Suspended", "TrainJob is suspended")
RESUMED = ("Suspended", "False", "Resumed", "TrainJob is resumed")
COMPLETE = ("Complete", "True", "AllJobsCompleted", "jobset completed successfully")
RUNNING = {"active": 1, "ready": 1}


def suspend(client, namespace, value=True):
    """Set spec.suspend, and return the TrainJob."""
    return client.patch("TrainJob", namespace, "job", {"spec": {"suspend": value}})


def step_of(pod):
    return pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]


def node_has_counters(counts):
    return lambda job: counters(job).get("node") == counts


def test_created_suspended(client, namespace):
    """A job that is created suspended has a JobSet and a suspended Job, but no pods. Resumed, it runs to its end."""
    created = client.create(shell("true", suspend=True), namespace)
    held = watch_states(client, created, node_has_counters({"suspended": 1}))
    assert conditions(held[-1]) == [SUSPENDED]
    assert client.get("JobSet", namespace, "job")["spec"]["suspend"] is True
    assert client.get("Job", namespace, "job-node-0")["spec"]["suspend"] is True
    assert client.find("Service", namespace, "job") is not None
    assert client.list("Pod", namespace) == []
    states = watch_states(client, suspend(client, namespace, False))
    assert conditions(states[-1]) == [RESUMED, COMPLETE]
    seen = job_counter_states(states)
    assert is_subsequence(seen, [{"suspended": 1}, {}, {"active": 1}, RUNNING, {"ready": 1}, {"succeeded": 1}]), seen


def test_suspension_of_a_running_job(client, namespace):
    """Suspending a running job deletes its pods. When it resumes, it starts again in new pods."""
    client.create(shell("sleep 60"), namespace)
    client.wait_for("TrainJob", namespace, "job", node_has_counters(RUNNING))
    (before,) = list_pods(client, namespace)
    states = watch_states(client, suspend(client, namespace), node_has_counters({"suspended": 1}))
    assert conditions(states[-1]) == [SUSPENDED]
    client.wait_until_deleted("Pod", namespace, before["metadata"]["name"])
    job = client.get("Job", namespace, "job-node-0")
    states = watch_states(client, suspend(client, namespace, False), node_has_counters(RUNNING))
    assert conditions(states[-1]) == [RESUMED]
    (after,) = list_pods(client, namespace)
    assert after["metadata"]["name"] != before["metadata"]["name"]
    assert client.get("Job", namespace, "job-node-0")["metadata"]["uid"] == job["metadata"]["uid"]


def test_finished_steps_do_not_run_again(client, namespace):
    """An initializer that succeeded before a suspension does not run again."""
    steps = [
        replicated_job("dataset-initializer"),
        replicated_job("node", "sleep 60", depends_on=["dataset-initializer"]),
    ]
    client.create(train_job(**create_own_runtime(client, namespace, *steps)), namespace)
    client.wait_for("TrainJob", namespace, "job", node_has_counters(RUNNING))
    (node,) = [pod for pod in list_pods(client, namespace) if step_of(pod) == "node"]
    suspend(client, namespace)
    held = client.wait_for("TrainJob", namespace, "job", node_has_counters({"suspended": 1}))
    client.wait_until_deleted("Pod", namespace, node["metadata"]["name"])
    assert counters(held)["dataset-initializer"] == {"succeeded": 1}
    states = watch_states(client, suspend(client, namespace, False), node_has_counters(RUNNING))
    assert job_counter_states(states, "dataset-initializer") == [{"succeeded": 1}]
    assert sorted(step_of(pod) for pod in list_pods(client, namespace)) == ["dataset-initializer", "node"]


def test_suspension_of_a_complete_job(client, namespace):
    """A Complete job that is suspended gets the condition Suspended too, and stays Complete."""
    client.create(shell("true"), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    states = watch_states(client, suspend(client, namespace), has_condition("Suspended"))
    assert conditions(states[-1]) == [COMPLETE, SUSPENDED]
    assert counters(states[-1]) == {"node": {"succeeded": 1}}
    states = watch_states(client, suspend(client, namespace, False), has_condition("Suspended", "False"))
    assert conditions(states[-1]) == [COMPLETE, RESUMED]


@pytest.mark.since("2.2")
def test_resume_on_a_stock_runtime_with_a_claim(client, namespace):
    """On a stock torchtune runtime, a resumed job gets the condition Resumed, but its Jobs stay suspended."""
    client.create(train_job(runtime="torchtune-llama3.2-1b", suspend=True), namespace)
    held = {"dataset-initializer": {"suspended": 1}, "model-initializer": {"suspended": 1}, "node": {}}
    client.wait_for("TrainJob", namespace, "job", lambda job: counters(job) == held)
    states = watch_states(client, suspend(client, namespace, False), has_condition("Suspended", "False"))
    refused = client.wait_for(
        "Event", namespace, "", lambda event: event["reason"] == "TrainJobResourcesCreationFailed"
    )
    assert refused["involvedObject"]["kind"] == "TrainJob"
    assert client.get("JobSet", namespace, "job")["spec"]["suspend"] is True
    assert counters(states[-1]) == held


@pytest.mark.before("2.2")
def test_resume_on_a_stock_runtime(client, namespace):
    """Up to 2.1 a suspended job on a stock torchtune runtime resumes, because its JobSet has no claim."""
    client.create(train_job(runtime="torchtune-llama3.2-1b", suspend=True), namespace)
    client.wait_for(
        "TrainJob", namespace, "job", lambda job: counters(job).get("model-initializer") == {"suspended": 1}
    )
    states = watch_states(
        client, suspend(client, namespace, False), lambda job: counters(job)["model-initializer"] == {"active": 1}
    )
    assert conditions(states[-1]) == [RESUMED]
