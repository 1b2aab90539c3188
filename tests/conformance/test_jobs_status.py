"""The counters of status.jobsStatus during the life of a TrainJob."""

from __future__ import annotations

import pytest

from tests.conformance.histories import counter_states, is_subsequence, job_counter_states, watch_states
from tests.conformance.runtimes import create_own_runtime, never_restarted_job, replicated_job
from tests.support.trainjobs import conditions, counters, is_finished, list_pods, shell, train_job

WAITING = {}
PENDING = {"active": 1}
RUNNING = {"active": 1, "ready": 1}
ENDING = {"ready": 1}  # the pods have ended, and the JobSet controller has not seen it yet
SUCCEEDED = {"succeeded": 1}
FAILED = {"failed": 1}
COUNTER_SEQUENCE = [WAITING, PENDING, RUNNING, ENDING, SUCCEEDED]


def node_has_counters(*expected):
    return lambda job: counters(job).get("node") in expected


def test_counters_of_a_successful_job(client, namespace, gate):
    """A step's counters go from zeros to active, active and ready, and succeeded. They count Jobs, not pods."""
    file, wait = gate
    running = watch_states(
        client, client.create(shell(wait, trainer={"numNodes": 2}), namespace), node_has_counters(RUNNING)
    )
    file.touch()
    states = [*running, *watch_states(client, running[-1])]
    seen = job_counter_states(states)
    assert is_subsequence(seen, COUNTER_SEQUENCE), seen
    assert seen[-1] == SUCCEEDED
    (row,) = states[-1]["status"]["jobsStatus"]
    assert row == {"name": "node", "active": 0, "failed": 0, "ready": 0, "succeeded": 1, "suspended": 0}
    assert len(list_pods(client, namespace)) == 2


def test_counters_of_a_failed_job(client, namespace):
    """A step that fails goes from active to failed."""
    runtime = create_own_runtime(client, namespace, never_restarted_job("node", "exit 3"))
    states = watch_states(client, client.create(train_job(**runtime), namespace))
    seen = job_counter_states(states)
    assert is_subsequence(seen, [WAITING, PENDING, RUNNING, PENDING, WAITING, FAILED]), seen
    assert seen[-1] == FAILED


def test_initializers(client, namespace):
    """All steps are listed from the start. The node starts when both initializers have succeeded."""
    initializers = {"dataset-initializer": "sleep 0.4", "model-initializer": "true"}
    steps = [replicated_job(name, script) for name, script in initializers.items()]
    runtime = create_own_runtime(
        client, namespace, *steps, replicated_job("node", "true", depends_on=list(initializers))
    )
    states = watch_states(client, client.create(train_job(**runtime), namespace))
    seen = counter_states(states)
    assert {frozenset(found) for found in seen} == {frozenset([*initializers, "node"])}
    for found in seen:
        started = found["node"] != WAITING
        done = all(found[name] == SUCCEEDED for name in initializers)
        assert done or not started, seen
    for name in [*initializers, "node"]:
        assert is_subsequence(job_counter_states(states, name), COUNTER_SEQUENCE), job_counter_states(states, name)
        assert counters(states[-1])[name] == SUCCEEDED


@pytest.mark.only("laptop", "controlplane")  # the second run finds a file of this machine
def test_counters_after_a_restart(client, namespace, gate, tmp_path):
    """When all Jobs restart, the counters start again."""
    file, wait = gate
    mark = tmp_path / "second"
    script = f"if [ -e {mark} ]; then {wait}; exit 3; fi; mkdir -p {tmp_path}; touch {mark}; exit 3"
    runtime = create_own_runtime(
        client, namespace, never_restarted_job("node", script), failurePolicy={"maxRestarts": 1}
    )
    created = client.create(train_job(**runtime), namespace)
    client.wait_for("JobSet", namespace, "job", lambda jobset: jobset.get("status", {}).get("restarts") == 1)
    again = watch_states(client, created, node_has_counters(PENDING, RUNNING))  # the watch begins at the creation
    client.wait_for("TrainJob", namespace, "job", node_has_counters(RUNNING))
    file.touch()
    states = [*again, *watch_states(client, again[-1])]
    assert is_subsequence(job_counter_states(states), [WAITING, PENDING, RUNNING, PENDING, WAITING, FAILED] * 2)
    assert job_counter_states(states)[-1] == FAILED


def test_no_nodes(client, namespace):
    """With numNodes 0 the job is Complete at once, without a pod."""
    client.create(shell("true", trainer={"numNodes": 0}), namespace)
    job = client.wait_for("TrainJob", namespace, "job", is_finished)
    assert conditions(job)[0][:3] == ("Complete", "True", "AllJobsCompleted")
    assert counters(job) == {"node": SUCCEEDED}
    assert client.list("Pod", namespace) == []
