"""What becomes of containers that fail: restarts in place, new pods, exit codes."""

from __future__ import annotations

import pytest

from tests.conformance.histories import job_counter_states, watch_states
from tests.conformance.runtimes import OWN_RUNTIME, create_own_runtime, never_restarted_job, replicated_job
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import conditions, is_finished, list_pods, shell, train_job

CODES = [
    ("exit 3", 3),
    ("exit 255", 255),
    ("no-such-program", 127),
    ("sh -c 'kill -KILL $$$$'; exit $?", 137),  # $$ stands for one $ in commands of containers
    ("sh -c 'kill -TERM $$$$'; exit $?", 143),
]


def state_of(pod):
    """The state of a pod's only container."""
    return pod["status"]["containerStatuses"][0]


def has_restarted(pod):
    statuses = pod["status"].get("containerStatuses")
    return bool(statuses) and statuses[0]["restartCount"] >= 1


def test_in_place(client, namespace):
    """By default a failed container is restarted in its pod; the job goes on, and ends well if the restart does."""
    node = replicated_job(
        "node", "echo run $JOB_COMPLETION_INDEX; test -e /data/second || { touch /data/second; exit 4; }"
    )
    pod = node["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [{"name": "data", "emptyDir": {}}]
    pod["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    states = watch_states(client, client.create(train_job(**create_own_runtime(client, namespace, node)), namespace))
    assert conditions(states[-1])[0][0] == "Complete"
    assert not any(found.get("failed") for found in job_counter_states(states))
    (pod,) = list_pods(client, namespace)
    assert pod["spec"]["restartPolicy"] == "OnFailure"
    status = state_of(pod)
    assert (status["restartCount"], status["lastState"]["terminated"]["exitCode"]) == (1, 4)
    assert status["state"]["terminated"]["exitCode"] == 0
    name = pod["metadata"]["name"]
    assert client.log(namespace, name, previous=True) == client.log(namespace, name) == "run 0\n"


def test_the_limit(client, namespace):
    """With more restarts than backoffLimit the job is Failed and its pod is deleted, its log with it."""
    runtime = create_own_runtime(client, namespace, replicated_job("node", "echo why; exit 4", backoffLimit=1))
    created = client.create(train_job(**runtime), namespace)
    since = {"resourceVersion": created["metadata"]["resourceVersion"]}  # the pod may be gone already
    pods = (event["object"] for event in client.watch_events(path_of("Pod", namespace), **since))
    name = next(pod["metadata"]["name"] for pod in pods if has_restarted(pod))
    job = client.wait_for("TrainJob", namespace, "job", is_finished)
    assert conditions(job)[0][2] == "FailedJobs"
    client.wait_until_deleted("Pod", namespace, name)
    answer = client.request("GET", path_of("Pod", namespace, name, "log"))
    assert (answer.code, answer.message) == (404, f'pods "{name}" not found')


def test_the_default_limit_is_six(client, namespace):
    """A job without a backoffLimit of its own has 6."""
    client.create(shell("true", suspend=True), namespace)
    job = client.wait_for("Job", namespace, "job-node-0", bool)
    assert job["spec"]["backoffLimit"] == 6
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_without_restarts_the_pod_stays(client, namespace):
    """With restartPolicy Never a failed pod stays, with its exit code and its log, until the job is deleted."""
    runtime = create_own_runtime(client, namespace, never_restarted_job("node", "echo out; echo err >&2; exit 3"))
    client.create(train_job(**runtime), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    (pod,) = list_pods(client, namespace)
    assert pod["status"]["phase"] == "Failed"
    assert (state_of(pod)["restartCount"], state_of(pod)["state"]["terminated"]["exitCode"]) == (0, 3)
    assert sorted(client.log(namespace, pod["metadata"]["name"]).splitlines()) == ["err", "out"]


def test_a_new_pod_for_a_failed_one(client, namespace):
    """With restartPolicy Never and a backoffLimit a failed pod is replaced; all of them stay."""
    runtime = create_own_runtime(client, namespace, never_restarted_job("node", "exit 3", backoffLimit=1))
    client.create(train_job(**runtime), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    pods = list_pods(client, namespace)
    assert [pod["status"]["phase"] for pod in pods] == ["Failed", "Failed"]
    assert {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in pods} == {"0"}


def test_a_deleted_pod_is_replaced(client, namespace):
    """A running pod that somebody deletes is replaced by a new one of its rank; the job goes on."""
    client.create(shell("sleep 60"), namespace)
    client.wait_for("Pod", namespace, "", lambda pod: pod["status"]["phase"] == "Running")
    (pod,) = list_pods(client, namespace)
    client.delete("Pod", namespace, pod["metadata"]["name"])
    new = client.wait_for("Pod", namespace, "", lambda one: one["metadata"]["uid"] != pod["metadata"]["uid"])
    assert new["spec"]["hostname"] == pod["spec"]["hostname"]
    assert not conditions(client.get("TrainJob", namespace, "job"))


def test_exit_codes(client, namespace):
    """Exit codes are told as they are; a process that a signal ends has 128 and the signal's number."""
    create_own_runtime(client, namespace, never_restarted_job())
    for number, (script, _) in enumerate(CODES):
        client.create(shell(script, name=f"job{number}", **OWN_RUNTIME), namespace)
    for number, (script, code) in enumerate(CODES):
        client.wait_for("TrainJob", namespace, f"job{number}", is_finished)
        (pod,) = list_pods(client, namespace, f"job{number}")
        end = state_of(pod)["state"]["terminated"]
        assert (script, end["exitCode"], end["reason"]) == (script, code, "Error")


@pytest.mark.only("laptop", "controlplane")
def test_a_killed_container(client, namespace):
    """A container whose first process is killed has exit code 137; nothing says OOMKilled."""
    runtime = create_own_runtime(client, namespace, never_restarted_job("node", "kill -KILL $$$$"))
    client.create(train_job(**runtime), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    (pod,) = list_pods(client, namespace)
    end = state_of(pod)["state"]["terminated"]
    assert (end["exitCode"], end["reason"]) == (137, "Error")


def test_a_missing_program(client, namespace):
    """A command that does not exist ends its container with StartError, exit code 128, and a message that says so."""
    create_own_runtime(client, namespace, never_restarted_job())
    client.create(train_job("no-such-program", **OWN_RUNTIME), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    (pod,) = list_pods(client, namespace)
    end = state_of(pod)["state"]["terminated"]
    assert (end["exitCode"], end["reason"]) == (128, "StartError")
    assert "executable file not found in $PATH" in end["message"]
