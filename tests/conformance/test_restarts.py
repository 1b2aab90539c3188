"""Containers that fail: restarts in place, new pods, exit codes."""

from __future__ import annotations

import pytest

from tests.conformance.histories import job_counter_states, watch_states
from tests.conformance.runtimes import OWN_RUNTIME, create_own_runtime, never_restarted_job, replicated_job
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import conditions, is_finished, list_pods, shell, train_job

EXIT_CODES = [
    ("exit 3", 3),
    ("exit 255", 255),
    ("no-such-program", 127),
    ("sh -c 'kill -KILL $$$$'; exit $?", 137),  # in a container's command, $$ is one $
    ("sh -c 'kill -TERM $$$$'; exit $?", 143),
]


def container_status_of(pod):
    """Return the status of a pod's only container."""
    return pod["status"]["containerStatuses"][0]


def has_restarted(pod):
    statuses = pod["status"].get("containerStatuses")
    return bool(statuses) and statuses[0]["restartCount"] >= 1


def test_restart_in_place(client, namespace):
    """A failed container restarts in its pod by default. The job keeps running, and can succeed."""
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
    status = container_status_of(pod)
    assert (status["restartCount"], status["lastState"]["terminated"]["exitCode"]) == (1, 4)
    assert status["state"]["terminated"]["exitCode"] == 0
    name = pod["metadata"]["name"]
    assert client.log(namespace, name, previous=True) == client.log(namespace, name) == "run 0\n"


def test_backoff_limit(client, namespace):
    """With more restarts than the backoffLimit the job is Failed. Its pod is deleted, and so is the log."""
    runtime = create_own_runtime(client, namespace, replicated_job("node", "echo why; exit 4", backoffLimit=1))
    created = client.create(train_job(**runtime), namespace)
    since = {"resourceVersion": created["metadata"]["resourceVersion"]}  # the pod may be deleted already
    pods = (event["object"] for event in client.watch_events(path_of("Pod", namespace), **since))
    name = next(pod["metadata"]["name"] for pod in pods if has_restarted(pod))
    job = client.wait_for("TrainJob", namespace, "job", is_finished)
    assert conditions(job)[0][2] == "FailedJobs"
    client.wait_until_deleted("Pod", namespace, name)
    response = client.request("GET", path_of("Pod", namespace, name, "log"))
    assert (response.code, response.message) == (404, f'pods "{name}" not found')


def test_default_backoff_limit(client, namespace):
    """The default backoffLimit of a job is 6."""
    client.create(shell("true", suspend=True), namespace)
    job = client.wait_for("Job", namespace, "job-node-0", bool)
    assert job["spec"]["backoffLimit"] == 6
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_failed_pod_without_restarts(client, namespace):
    """With restartPolicy Never, a failed pod is kept, with exit code and log, until the job is deleted."""
    runtime = create_own_runtime(client, namespace, never_restarted_job("node", "echo out; echo err >&2; exit 3"))
    client.create(train_job(**runtime), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    (pod,) = list_pods(client, namespace)
    assert pod["status"]["phase"] == "Failed"
    assert (container_status_of(pod)["restartCount"], container_status_of(pod)["state"]["terminated"]["exitCode"]) == (
        0,
        3,
    )
    assert sorted(client.log(namespace, pod["metadata"]["name"]).splitlines()) == ["err", "out"]


def test_replacement_of_a_failed_pod(client, namespace):
    """With restartPolicy Never and a backoffLimit, a failed pod is replaced. All pods are kept."""
    runtime = create_own_runtime(client, namespace, never_restarted_job("node", "exit 3", backoffLimit=1))
    client.create(train_job(**runtime), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    pods = list_pods(client, namespace)
    assert [pod["status"]["phase"] for pod in pods] == ["Failed", "Failed"]
    assert {pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in pods} == {"0"}


def test_replacement_of_a_deleted_pod(client, namespace):
    """A deleted running pod is replaced by a pod with the same rank. The job keeps running."""
    client.create(shell("sleep 60"), namespace)
    client.wait_for("Pod", namespace, "", lambda pod: pod["status"]["phase"] == "Running")
    (pod,) = list_pods(client, namespace)
    client.delete("Pod", namespace, pod["metadata"]["name"])
    new = client.wait_for("Pod", namespace, "", lambda one: one["metadata"]["uid"] != pod["metadata"]["uid"])
    assert new["spec"]["hostname"] == pod["spec"]["hostname"]
    assert not conditions(client.get("TrainJob", namespace, "job"))


def test_exit_codes(client, namespace):
    """Exit codes are reported as they are. A process that a signal ends has 128 plus the signal's number."""
    create_own_runtime(client, namespace, never_restarted_job())
    for number, (script, _) in enumerate(EXIT_CODES):
        client.create(shell(script, name=f"job{number}", **OWN_RUNTIME), namespace)
    for number, (script, code) in enumerate(EXIT_CODES):
        client.wait_for("TrainJob", namespace, f"job{number}", is_finished)
        (pod,) = list_pods(client, namespace, f"job{number}")
        end = container_status_of(pod)["state"]["terminated"]
        assert (script, end["exitCode"], end["reason"]) == (script, code, "Error")


@pytest.mark.only("laptop", "controlplane")
def test_a_killed_container(client, namespace):
    """A container whose first process is killed has exit code 137. Its reason is not OOMKilled."""
    runtime = create_own_runtime(client, namespace, never_restarted_job("node", "kill -KILL $$$$"))
    client.create(train_job(**runtime), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    (pod,) = list_pods(client, namespace)
    end = container_status_of(pod)["state"]["terminated"]
    assert (end["exitCode"], end["reason"]) == (137, "Error")


def test_a_missing_program(client, namespace):
    """A command that does not exist fails with StartError, exit code 128 and a message."""
    create_own_runtime(client, namespace, never_restarted_job())
    client.create(train_job("no-such-program", **OWN_RUNTIME), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    (pod,) = list_pods(client, namespace)
    end = container_status_of(pod)["state"]["terminated"]
    assert (end["exitCode"], end["reason"]) == (128, "StartError")
    assert "executable file not found in $PATH" in end["message"]
