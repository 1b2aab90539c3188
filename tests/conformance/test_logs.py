"""Pod logs through the API server: options, and responses when there is no log."""

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
    """Return the name of a finished pod with three lines in its log.

    The first line is more than a second older than the others, and the last one has no line end.
    """
    file, wait = gate
    client.create(shell(f"echo one; {wait}; echo two; printf three"), namespace)
    client.wait_for("TrainJob", namespace, "job", lambda job: counters(job).get("node", {}).get("ready"))
    (pod,) = list_pods(client, namespace)
    name = pod["metadata"]["name"]
    assert next(client.follow_log(namespace, name)) == "one\n"  # this line has its timestamp now
    time.sleep(1.1)  # kube-apiserver rounds sinceTime down to whole seconds
    file.touch()
    client.wait_for("TrainJob", namespace, "job", is_finished)
    return name


def unschedulable_pod(name, **spec):
    """Return a pod with one container, for cases in which it does not start."""
    container = {"name": "main", "image": IMAGE, "command": ["true"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [{**container, **spec.pop("container", {})}], **spec},
    }


def test_parts_of_a_log(client, namespace, ended_pod):
    """A log can be limited by lines, bytes and time, and each line can have its timestamp."""
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


def test_followed_log(client, namespace, gate):
    """A followed log arrives while it is written, and ends with the container."""
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
def test_invalid_log_requests(client, namespace, query, code, text):
    """A missing container or previous run gets 400. A number out of range gets 422."""
    client.create(shell("true"), namespace)
    client.wait_for("TrainJob", namespace, "job", is_finished)
    (pod,) = list_pods(client, namespace)
    response = request_log(client, namespace, pod["metadata"]["name"], **query)
    assert (response.code, response.message) == (code, text.format(pod=pod["metadata"]["name"]))


def test_log_of_a_missing_pod(client, namespace):
    """The log of a missing pod gets 404."""
    response = request_log(client, namespace, "nobody")
    assert (response.code, response.reason, response.message) == (404, "NotFound", 'pods "nobody" not found')


def test_log_before_the_start(client, namespace):
    """While a container waits for a missing object, its log gets 400 with the reason."""
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "missing", "key": "token"}}}]
    client.create(unschedulable_pod("secretless", container={"env": env}), namespace)
    client.wait_for("Pod", namespace, "secretless", lambda pod: "CreateContainerConfigError" in str(pod["status"]))
    response = request_log(client, namespace, "secretless")
    text = 'container "main" in pod "secretless" is waiting to start: CreateContainerConfigError'
    assert (response.code, response.reason, response.message) == (400, "BadRequest", text)


def test_log_of_an_unscheduled_pod(client, namespace):
    """The log of a pod without a node is empty and has the code 204."""
    client.create(unschedulable_pod("homeless", nodeSelector={"example.org/no": "such"}), namespace)
    client.wait_for("Pod", namespace, "homeless", lambda pod: "Unschedulable" in str(pod["status"]))
    response = request_log(client, namespace, "homeless")
    assert (response.code, response.body) == (204, "")


def test_several_containers(client, namespace):
    """A log request for a pod with several containers must name one."""
    pod = unschedulable_pod("several")
    pod["spec"]["containers"] = [
        {"name": name, "image": IMAGE, "command": ["echo", name]} for name in ("first", "second")
    ]
    client.create(pod, namespace)
    client.wait_for("Pod", namespace, "several", lambda pod: pod["status"]["phase"] == "Succeeded")
    assert client.log(namespace, "several", container="second") == "second\n"
    response = request_log(client, namespace, "several")
    text = "a container name must be specified for pod several, choose one of: [first second]"
    assert (response.code, response.message) == (400, text)


def test_log_of_a_deleted_pod(client, namespace, ended_pod):
    """The log of a deleted pod gets 404 at once."""
    client.delete("TrainJob", namespace, "job")
    client.wait_until_deleted("Pod", namespace, ended_pod)
    assert request_log(client, namespace, ended_pod).code == 404


def test_logs_before_a_restart(client, namespace):
    """While a container waits for its restart, the log of its last run is both the current and the previous one."""
    main = {"command": ["sh", "-c", "date +%N; sleep 0.2; exit 1"]}
    client.create(unschedulable_pod("again", restartPolicy="Always", container=main), namespace)

    def is_backing_off(pod):
        [status] = pod["status"].get("containerStatuses", [{}])
        return "CrashLoopBackOff" in str(status.get("state")) and status["restartCount"] >= 1

    def read_logs():
        client.wait_for("Pod", namespace, "again", is_backing_off)
        logs = client.log(namespace, "again"), client.log(namespace, "again", previous=True)
        # If the container has started in the meantime, the logs are of different runs.
        return logs if is_backing_off(client.get("Pod", namespace, "again")) else None

    current, previous = next(logs for _ in range(10) if (logs := read_logs()))
    assert current == previous
    assert current.strip().isdigit()
