"""Projects that travel in ConfigMaps: the limits of these objects, and whole runs."""

from __future__ import annotations

import base64
import os

import pytest

from tests.support.kubernetes_client import path_of
from trainjob import Code, CustomTrainerContainer, RunKey, TrainJob, WorkspaceVolume, cancel, submit, wait
from trainjob.lifecycle import Listener

LIMIT = 1 << 20  # bytes
TOO_LONG = 'ConfigMap "code" is invalid: []: Too long: may not be more than 1048576 bytes'
IMMUTABLE = 'ConfigMap "code" is invalid: {}: Forbidden: field is immutable when `immutable` is set'


def config_map(size, **fields):
    data = {"code.tar.gz": base64.b64encode(b"\x1f" * size).decode()}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}, "binaryData": data, **fields}


def post(client, namespace, body):
    return client.request("POST", path_of("ConfigMap", namespace), body)


def test_a_configmap_has_at_most_one_mebibyte(client, namespace):
    refused = post(client, namespace, config_map(LIMIT + 1))
    assert (refused.code, refused.message) == (422, TOO_LONG)
    assert post(client, namespace, config_map(LIMIT)).code == 201


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"binaryData": {"code.tar.gz": "AAAA"}}, "binaryData"),
        ({"data": {"more": "text"}}, "data"),
        ({"immutable": False}, "immutable"),
    ],
)
def test_an_immutable_configmap_keeps_its_content(client, namespace, change, field):
    client.create(config_map(3, immutable=True), namespace)
    refused = client.request("PATCH", path_of("ConfigMap", namespace, "code"), change)
    assert (refused.code, refused.message) == (422, IMMUTABLE.format(field))
    labelled = client.request("PATCH", path_of("ConfigMap", namespace, "code"), {"metadata": {"labels": {"a": "b"}}})
    assert labelled.code == 200


def test_a_list_can_have_the_metadata_alone(cluster, client, namespace):
    client.create({**config_map(3), "metadata": {"name": "code", "labels": {"a": "b"}}}, namespace)
    [found] = cluster.list_config_maps(namespace, "a=b")
    assert found["metadata"]["name"] == "code"
    assert set(found) == {"kind", "apiVersion", "metadata"}


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("import model\nprint('arrived', model.NAME, flush=True)\n")
    (folder / "model.py").write_text("NAME = 'first'\n")
    return folder


def run(cluster, project, namespace, workspace=None):
    """Run the project on two nodes; return the reference, the log and the notices."""
    code, lines, notices = Code(path=str(project)), [], []
    trainer = CustomTrainerContainer(image="busybox", command=["python3", "train.py"], num_nodes=2, code=code)
    request = TrainJob(trainer=trainer, workspace=workspace and WorkspaceVolume(node_path=str(workspace)))
    key = RunKey("test", "code", "train", namespace)
    reference = submit(cluster, request, key, namespace=namespace, on_notice=notices.append)
    outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
    outcome.raise_for_failure()
    return reference, lines, notices


def test_a_project_travels_and_its_configmap_is_deleted_with_the_trainjob(cluster, client, namespace, project):
    reference, lines, _ = run(cluster, project, namespace)
    assert lines.count("arrived first") == 2
    cancel(cluster, reference, ignore_end=True)
    client.wait_until_deleted("ConfigMap", namespace, f"{reference.name}-code")


def test_a_large_project_travels_through_the_workspace(cluster, client, namespace, project, tmp_path):
    (tmp_path / "workspace").mkdir()
    (project / "weights.bin").write_bytes(os.urandom(2_000_000))
    reference, lines, notices = run(cluster, project, namespace, tmp_path / "workspace")
    assert lines.count("arrived first") == 2
    assert notices[1] == "code: sending 2 MB to the workspace, in 3 ConfigMaps"
    assert [one["metadata"]["name"] for one in client.list("TrainJob", namespace)] == [reference.name]
    for number in range(3):
        parts = [one for one in client.list("ConfigMap", namespace) if one["metadata"]["name"].endswith(f"-{number}")]
        for part in parts:
            client.wait_until_deleted("ConfigMap", namespace, part["metadata"]["name"])
