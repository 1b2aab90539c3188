"""Pods' logs through the API server: what can be asked for, and what is answered when there is none."""

from __future__ import annotations

import re
import time
from datetime import datetime, timezone

import pytest

from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import IMAGE, counters, is_finished, list_pods, shell

STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z) (.*)")


def request_log(client, namespace, pod, **query):
    return client.request("GET", path_of("Pod", namespace, pod, "log"), **query)


@pytest.fixture
def ended_pod(client, namespace, gate):
    """The name of a pod that has said something, more than a second later something else, and ended."""
    file, wait = gate
    client.create(shell(f"echo one; {wait}; echo two; printf three"), namespace)
    client.wait_for("TrainJob", namespace, "job", lambda job: counters(job).get("node", {}).get("ready"))
    (pod,) = list_pods(client, namespace)
    name = pod["metadata"]["name"]
    assert next(client.follow_log(namespace, name)) == "one\n"  # so it has its time
    time.sleep(1.1)  # kube-apiserver cuts sinceTime to whole seconds
    file.touch()
    client.wait_for("TrainJob", namespace, "job", is_finished)
    return name


def unschedulable_pod(name, **spec):
    """A pod that never gets as far as to run."""
    container = {"name": "main", "image": IMAGE, "command": ["true"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [{**container, **spec.pop("container", {})}], **spec},
    }


def test_parts_of_a_log(client, namespace, ended_pod):
    """A log can be cut by lines from its end, by bytes, by time, and stamped with the time of each line."""
    whole = "one\ntwo\nthree"
    assert client.log(namespace, ended_pod) == whole
    assert client.log(namespace, ended_pod, container="node", follow=True) == whole
    assert client.log(namespace, ended_pod, tailLines=1) == "three"
    assert client.log(namespace, ended_pod, tailLines=2) == "two\nthree"
    assert client.log(namespace, ended_pod, tailLines=0) == ""
    assert client.log(namespace, ended_pod, limitBytes=5) == "one\nt"
    assert client.log(namespace, ended_pod, sinceSeconds=600) == whole
    found = [STAMPED.fullmatch(line) for line in client.log(namespace, ended_pod, timestamps=True).splitlines()]
    assert [match[2] for match in found] == ["one", "two", "three"]
    assert client.log(namespace, ended_pod, sinceTime=found[1][1]) == "two\nthree"
    later = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert client.log(namespace, ended_pod, sinceTime=f"2099{later[4:]}") == ""
    assert client.log(namespace, ended_pod, sinceTime=found[1][1], tailLines=1, timestamps=True).endswith(" three")


def test_follow(client, namespace, gate):
    """A log that is followed comes while it is written, and ends with the container."""
    file, wait = gate
    client.create(shell(f"echo first; {wait}; echo second"), namespace)
    pod = client.wait_for("Pod", namespace, "", lambda pod: pod["status"]["phase"] == "Running")["metadata"]["name"]
    lines = client.follow_log(namespace, pod)
    assert next(lines) == "first\n"
    assert client.get("Pod", namespace, pod)["status"]["phase"] == "Running"
    file.touch()
    assert list(lines) == ["second\n"]


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        ({"container": "other"}, 400, "container other is not valid for pod {pod}"),
        ({"previous": True}, 400, 'previous terminated container "node" in pod "{pod}" not found'),
        (
            {"tailLines": -1},
            422,
            'PodLogOptions "{pod}" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0',
        ),
        (
            {"limitBytes": 0},
            422,
            'PodLogOptions "{pod}" is invalid: limitBytes: Invalid value: 0: must be greater than 0',
        ),
        (
            {"sinceSeconds": 0},
            422,
            'PodLogOptions "{pod}" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0',
        ),
    ],
)
def test_refusals(client, namespace, query, code, text):
    """A container or a run that is not there is refused with 400, a number that is out of range with 422."""
    client.create(shell("true"), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    (pod,) = list_pods(client, namespace)
    answer = request_log(client, namespace, pod["metadata"]["name"], **query)
    assert (answer.code, answer.message) == (code, text.format(pod=pod["metadata"]["name"]))


def test_no_such_pod(client, namespace):
    """The log of a pod that is not there is 404."""
    answer = request_log(client, namespace, "nobody")
    assert (answer.code, answer.reason, answer.message) == (404, "NotFound", 'pods "nobody" not found')


def test_not_started_yet(client, namespace):
    """While its container waits for something that is missing, a pod's log is 400 and says what it waits for."""
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "missing", "key": "token"}}}]
    client.create(unschedulable_pod("secretless", container={"env": env}), namespace)
    client.wait_for("Pod", namespace, "secretless", lambda pod: "CreateContainerConfigError" in str(pod["status"]))
    answer = request_log(client, namespace, "secretless")
    text = 'container "main" in pod "secretless" is waiting to start: CreateContainerConfigError'
    assert (answer.code, answer.reason, answer.message) == (400, "BadRequest", text)


def test_not_scheduled_yet(client, namespace):
    """The log of a pod that has no node yet is empty, 204."""
    client.create(unschedulable_pod("homeless", nodeSelector={"example.org/no": "such"}), namespace)
    client.wait_for("Pod", namespace, "homeless", lambda pod: "Unschedulable" in str(pod["status"]))
    answer = request_log(client, namespace, "homeless")
    assert (answer.code, answer.body) == (204, "")


def test_several_containers(client, namespace):
    """Of a pod with several containers one must be named."""
    pod = unschedulable_pod("several")
    pod["spec"]["containers"] = [
        {"name": name, "image": IMAGE, "command": ["echo", name]} for name in ("first", "second")
    ]
    client.create(pod, namespace)
    client.wait_for("Pod", namespace, "several", lambda pod: pod["status"]["phase"] == "Succeeded")
    assert client.log(namespace, "several", container="second") == "second\n"
    answer = request_log(client, namespace, "several")
    text = "a container name must be specified for pod several, choose one of: [first second]"
    assert (answer.code, answer.message) == (400, text)


def test_a_log_goes_with_its_pod(client, namespace, ended_pod):
    """The log of a pod goes with it: 404 as soon as the pod is deleted."""
    client.delete("TrainJob", namespace, "job")
    client.wait_until_deleted("Pod", namespace, ended_pod)
    assert request_log(client, namespace, ended_pod).code == 404


def test_while_a_container_waits_to_be_restarted(client, namespace):
    """While a container waits to be started again, its last run's log is both its current and its previous one."""
    main = {"command": ["sh", "-c", "date +%N; sleep 0.2; exit 1"]}
    client.create(unschedulable_pod("again", restartPolicy="Always", container=main), namespace)

    def backs_off(pod):
        [status] = pod["status"].get("containerStatuses", [{}])
        return "CrashLoopBackOff" in str(status.get("state")) and status["restartCount"] >= 1

    def look():
        client.wait_for("Pod", namespace, "again", backs_off)
        told = client.log(namespace, "again"), client.log(namespace, "again", previous=True)
        return told if backs_off(client.get("Pod", namespace, "again")) else None  # else it was started meanwhile

    current, previous = next(told for _ in range(10) if (told := look()))
    assert current == previous
    assert current.strip().isdigit()
