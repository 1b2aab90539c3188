"""Pods on the laptop cluster: logs, inputs, signals, restarts."""

from __future__ import annotations

import threading

import pytest

from tests.integration.local.cluster_client import NAMESPACE, ClusterClient
from tests.support.polling import wait_until


@pytest.fixture(scope="module")
def client(laptop):
    opened = ClusterClient(laptop.kubeconfig)
    yield opened
    opened.close()


def create_pod(kube, name, *command, policy="Never", containers=None, **spec):
    one = {"name": "main", "image": "busybox", "command": list(command)}
    body = {"restartPolicy": policy, "containers": containers or [one], **spec}
    return kube.core.create_namespaced_pod(NAMESPACE, {"metadata": {"name": name, "labels": {"l": "v"}}, "spec": body})


def get_phase(kube, name):
    return kube.core.read_namespaced_pod_status(name, NAMESPACE).status.phase


def wait_until_finished(kube, name):
    wait_until(lambda: get_phase(kube, name) in ("Succeeded", "Failed"))
    return kube.core.read_namespaced_pod_status(name, NAMESPACE)


def test_progress_frames_are_seen_while_they_are_shown(client, unique, tmp_path):
    """A reader gets each frame of a progress bar before the next frame is drawn."""
    wait = f"until [ -e {tmp_path}/$i ]; do sleep 0.02; done"
    create_pod(client, unique, "sh", "-c", f"for i in 1 2 3; do printf '\\r%s%%' $i; {wait}; done; echo; echo end")
    wait_until(lambda: get_phase(client, unique) == "Running")
    response = client.core.read_namespaced_pod_log(unique, NAMESPACE, follow=True, _preload_content=False)
    seen = b""
    for piece in response.stream(1, decode_content=False):
        seen += piece
        if seen.endswith(b"%"):
            (tmp_path / chr(seen[-2])).touch()
    assert seen == b"\r1%\r2%\r3%\nend\n"


def test_a_pod_gets_its_variables_and_volumes(client, unique):
    client.core.create_namespaced_secret(
        NAMESPACE, {"metadata": {"name": unique}, "stringData": {"a": "secret", "b": "x"}}
    )
    client.core.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": unique}, "data": {"f": "config"}})
    env = [
        {"name": "FIELD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['l']"}}},
        {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": unique, "key": "a"}}},
        {"name": "NONE", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "a", "optional": True}}},
        {"name": "MORE", "value": "$(FIELD)+$(KEY)"},
        {"name": "LIMIT", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
    ]
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    sources = [token, {"secret": {"name": unique, "items": [{"key": "a", "path": "deep/a"}]}}]
    script = "echo $FIELD $KEY ${NONE-unset} $MORE $LIMIT $PRE_b; cat /conf/f /made/x /all/deep/a; wc -c < /all/token"
    main = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", script],
        "env": env,
        "envFrom": [{"secretRef": {"name": unique}, "prefix": "PRE_"}],
        "resources": {"limits": {"cpu": "2"}},
        "volumeMounts": [
            {"name": "conf", "mountPath": "/conf"},
            {"name": "made", "mountPath": "/made"},
            {"name": "all", "mountPath": "/all"},
        ],
    }
    volumes = [
        {"name": "conf", "configMap": {"name": unique}},
        {"name": "made", "emptyDir": {}},
        {"name": "all", "projected": {"sources": sources}},
    ]
    first = {"name": "first", "image": "busybox", "command": ["sh", "-c", "echo -n made > /made/x; echo init"]}
    first["volumeMounts"] = [{"name": "made", "mountPath": "/made"}]
    create_pod(client, unique, containers=[main], initContainers=[first], volumes=volumes)
    ended = wait_until_finished(client, unique)
    assert ended.status.phase == "Succeeded"
    lines = client.read_log(unique, container="main").splitlines()
    assert lines[0] == "v secret unset v+secret 2 x"
    assert lines[1].startswith("configmadesecret")
    assert int(lines[1].removeprefix("configmadesecret")) > 20
    assert client.read_log(unique, container="first") == "init\n"


def test_an_ended_pod_leaves_its_logs_and_no_volumes(client, unique, laptop):
    main = {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo full > /made/x; cat /made/x"]}
    main["volumeMounts"] = [{"name": "made", "mountPath": "/made"}]
    create_pod(client, unique, containers=[main], volumes=[{"name": "made", "emptyDir": {}}])
    ended = wait_until_finished(client, unique)
    assert client.read_log(unique, container="main") == "full\n"
    folder = laptop.state / "pods" / ended.metadata.uid
    assert folder.is_dir()
    assert not (folder / "volumes").exists()


def test_a_failed_init_container_fails_the_pod(client, unique):
    first = {"name": "first", "image": "busybox", "command": ["sh", "-c", "exit 6"]}
    create_pod(client, unique, "true", initContainers=[first])
    ended = wait_until_finished(client, unique)
    assert ended.status.phase == "Failed"
    assert ended.status.init_container_statuses[0].state.terminated.exit_code == 6
    assert ended.status.container_statuses[0].state.waiting.reason == "PodInitializing"


def test_the_termination_message_can_come_from_the_log(client, unique):
    main = {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo why; exit 1"]}
    create_pod(client, unique, containers=[{**main, "terminationMessagePolicy": "FallbackToLogsOnError"}])
    assert wait_until_finished(client, unique).status.container_statuses[0].state.terminated.message == "why\n"


@pytest.mark.parametrize(("trap", "code", "grace"), [("trap 'exit 5' TERM", 5, 60), ("trap '' TERM", 137, 1)])
def test_a_deleted_pod_gets_sigterm_and_then_sigkill(client, unique, trap, code, grace):
    script = f"{trap}; echo up; while true; do sleep 0.05; done"
    create_pod(client, unique, "sh", "-c", script, terminationGracePeriodSeconds=grace)
    wait_until(lambda: get_phase(client, unique) == "Running" and client.read_log(unique))
    before = client.core.list_namespaced_pod(NAMESPACE).metadata.resource_version
    ends: list[object] = []

    def watch():
        import kubernetes

        stream = kubernetes.watch.Watch().stream(
            client.core.list_namespaced_pod,
            NAMESPACE,
            field_selector=f"metadata.name={unique}",
            resource_version=before,
            timeout_seconds=60,
        )
        for event in stream:
            statuses = event["object"].status.container_statuses
            if statuses and statuses[0].state.terminated:
                ends.append(statuses[0].state.terminated.exit_code)
            if event["type"] == "DELETED":
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    client.core.delete_namespaced_pod(unique, NAMESPACE)
    watcher.join(60)
    assert ends
    assert ends[-1] == code


def test_a_pod_ends_at_its_deadline(client, unique):
    create_pod(client, unique, "sleep", "60", activeDeadlineSeconds=1)
    ended = wait_until_finished(client, unique)
    assert (ended.status.phase, ended.status.reason) == ("Failed", "DeadlineExceeded")


def test_a_pod_with_several_containers_fails_if_one_container_fails(client, unique):
    containers = [
        {"name": "a", "image": "busybox", "command": ["sh", "-c", "echo a"]},
        {"name": "b", "image": "busybox", "command": ["sh", "-c", "echo b; exit 2"]},
    ]
    create_pod(client, unique, containers=containers)
    ended = wait_until_finished(client, unique)
    assert ended.status.phase == "Failed"
    codes = {one.name: one.state.terminated.exit_code for one in ended.status.container_statuses}
    assert codes == {"a": 0, "b": 2}
    assert client.read_log(unique, container="b") == "b\n"


def test_the_end_of_a_container_is_reported_while_another_one_runs(client, unique, tmp_path):
    """The pod is not ready any more, as with a real kubelet."""
    waits = ("sh", "-c", f"touch {tmp_path}/started; until test -e {tmp_path}/go; do sleep 0.05; done")
    ends = ("sh", "-c", f"until test -e {tmp_path}/end; do sleep 0.05; done")
    containers = [
        {"name": name, "image": "busybox", "command": list(command)}
        for name, command in (("own", ends), ("proxy", waits))
    ]
    create_pod(client, unique, containers=containers)

    def read_status():
        return client.core.read_namespaced_pod_status(unique, NAMESPACE).status

    def is_ready():
        return any((each.type, each.status) == ("Ready", "True") for each in read_status().conditions or ())

    wait_until(is_ready)
    (tmp_path / "end").touch()
    wait_until(lambda: not is_ready())
    status = read_status()
    own, proxy = status.container_statuses
    assert (status.phase, own.state.terminated.exit_code, own.ready) == ("Running", 0, False)
    assert (proxy.state.running is not None, proxy.ready) == (True, True)
    (tmp_path / "go").touch()
    assert wait_until_finished(client, unique).status.phase == "Succeeded"
