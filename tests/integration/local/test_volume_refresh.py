"""Volumes of a running pod: their files change with the objects, as the kubelet does it."""

from __future__ import annotations

import pytest

from tests.integration.local.cluster_client import NAMESPACE, ClusterClient
from tests.support.polling import wait_until
from trainjob_local.kubelet.volume_files import replace_files


@pytest.fixture(scope="module")
def client(laptop):
    opened = ClusterClient(laptop.kubeconfig)
    yield opened
    opened.close()


@pytest.fixture
def start_pod(client, unique):
    """Return a function that creates the objects and the pod of a test until it runs."""

    def start(script):
        kube = client.core
        kube.create_namespaced_config_map(
            NAMESPACE, {"metadata": {"name": unique}, "data": {"text": "one", "old": "x"}}
        )
        kube.create_namespaced_secret(NAMESPACE, {"metadata": {"name": unique}, "stringData": {"key": "one"}})
        field = {"path": "mark", "fieldRef": {"fieldPath": "metadata.annotations['mark']"}}
        sources = [{"secret": {"name": unique}}, {"downwardAPI": {"items": [field]}}]
        absent = {"configMap": {"name": f"{unique}-absent", "optional": True}}
        volumes = [
            {"name": "config", "configMap": {"name": unique}},
            {"name": "all", "projected": {"sources": sources}},
            {"name": "absent", **absent},
            {"name": "own", "emptyDir": {}},
        ]
        mounts = [
            {"name": "config", "mountPath": "/conf"},
            {"name": "config", "mountPath": "/part", "subPath": "text"},
            {"name": "all", "mountPath": "/all"},
            {"name": "absent", "mountPath": "/absent"},
            {"name": "own", "mountPath": "/own"},
        ]
        command = ["sh", "-c", f"echo kept > /own/file; {script}"]
        main = {"name": "main", "image": "busybox", "command": command, "volumeMounts": mounts}
        spec = {"restartPolicy": "Never", "containers": [main], "volumes": volumes}
        kube.create_namespaced_pod(NAMESPACE, {"metadata": {"name": unique}, "spec": spec})
        wait_until(lambda: "began" in read_log(client, unique))

    return start


def read_log(client, name):
    status = client.core.read_namespaced_pod_status(name, NAMESPACE).status
    started = any(one.state.running or one.state.terminated for one in status.container_statuses or ())
    return client.read_log(name) if started else ""


def wait_for(path, text):
    return f'until [ "$(cat {path} 2>/dev/null)" = {text} ]; do sleep 0.05; done'


SHOW = "cat /conf/text /part /all/key /own/file; ls /conf; echo ended"


def test_a_changed_pod_gets_the_new_files_at_once(client, start_pod, unique):
    start_pod(f"cat /part; echo began; {wait_for('/all/mark', 'now')}; {wait_for('/absent/late', 'late')}; {SHOW}")
    kube = client.core
    kube.patch_namespaced_config_map(unique, NAMESPACE, {"data": {"text": "two", "old": None, "new": "y"}})
    kube.patch_namespaced_secret(unique, NAMESPACE, {"stringData": {"key": "two"}})
    kube.create_namespaced_config_map(NAMESPACE, {"metadata": {"name": f"{unique}-absent"}, "data": {"late": "late"}})
    kube.patch_namespaced_pod(unique, NAMESPACE, {"metadata": {"annotations": {"mark": "now"}}})
    wait_until(lambda: "ended" in read_log(client, unique))
    assert read_log(client, unique) == "onebegan\ntwoonetwokept\nnew\ntext\nended\n"


def test_a_deleted_config_map_leaves_its_files(client, start_pod, unique):
    start_pod(f"echo began; {wait_for('/all/mark', 'now')}; cat /conf/text; echo ' ended'")
    client.core.delete_namespaced_config_map(unique, NAMESPACE)
    client.core.patch_namespaced_pod(unique, NAMESPACE, {"metadata": {"annotations": {"mark": "now"}}})
    wait_until(lambda: "ended" in read_log(client, unique))
    assert read_log(client, unique) == "began\none ended\n"


@pytest.mark.slow
def test_a_pod_that_does_not_change_gets_the_new_files_within_a_minute(client, start_pod, unique):
    start_pod(f"echo began; {wait_for('/conf/text', 'two')}; echo ended")
    client.core.patch_namespaced_config_map(unique, NAMESPACE, {"data": {"text": "two"}})
    wait_until(lambda: "ended" in read_log(client, unique))


def test_a_reader_sees_the_files_of_one_moment(tmp_path):
    replace_files(tmp_path, {"a": b"1", "deep/b": b"1", "deep/c": b"1"})
    first = (tmp_path / "..data").resolve()
    replace_files(tmp_path, {"a": b"2", "deep/b": b"2"})
    second = (tmp_path / "..data").resolve()
    assert [(folder / "a").read_bytes() for folder in (first, second)] == [b"1", b"2"]
    assert sorted(str(each.relative_to(second)) for each in second.rglob("*")) == ["a", "deep", "deep/b"]
    assert (tmp_path / "deep" / "b").read_bytes() == b"2"
    assert sorted(each.name for each in tmp_path.iterdir() if not each.name.startswith("..")) == ["a", "deep"]
    replace_files(tmp_path, {"a": b"2", "deep/b": b"2"})
    assert (tmp_path / "..data").resolve() == second
    replace_files(tmp_path, {})
    assert [each.name for each in tmp_path.iterdir() if not each.name.startswith("..")] == []
