"""Paths of the files of a volume: a path that leads out of the volume is rejected with the Job."""

from __future__ import annotations

import pytest

from tests.support.kubernetes_client import path_of

PATHS = {
    "../x": "Invalid value: \"../x\": must not contain '..'",
    "a/../x": "Invalid value: \"a/../x\": must not contain '..'",
    "..x": "Invalid value: \"..x\": must not start with '..'",
    "/x": 'Invalid value: "/x": must be a relative path',
    "": "Required value",
}
SECRET, CONFIG_MAP = (
    lambda items: {"secret": {"secretName": "s", "items": items}},
    lambda items: {"configMap": {"name": "c", "items": items}},
)


def projected(source):
    return {"projected": {"sources": [source]}}


# The field that the server names, and the volume with a file at a path.
VOLUMES = {
    "secret.items[0].path": lambda path: SECRET([{"key": "k", "path": path}]),
    "configMap.items[0].path": lambda path: CONFIG_MAP([{"key": "k", "path": path}]),
    "downwardAPI.path": lambda path: {"downwardAPI": {"items": [pod_name_item(path)]}},
    "projected.path": lambda path: projected({"serviceAccountToken": {"path": path}}),
    "projected.sources[0].secret.items[0].path": lambda path: projected(
        {"secret": {"name": "s", "items": [{"key": "k", "path": path}]}}
    ),
    "projected.sources[0].downwardAPI.path": lambda path: projected({"downwardAPI": {"items": [pod_name_item(path)]}}),
}


def pod_name_item(path):
    return {"path": path, "fieldRef": {"fieldPath": "metadata.name"}}


def job(volume):
    container = {"name": "node", "image": "x", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [{"name": "v", **volume}]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize("field", VOLUMES)
def test_file_paths_of_volumes(client, namespace, field):
    """The path of a file in a volume must be relative and must not contain `..`."""
    accepted = client.request("POST", path_of("Job", namespace), job(VOLUMES[field]("a/b")), dryRun="All")
    assert accepted.code == 201
    unmounted = 'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "v"'
    for path, text in PATHS.items():
        response = client.request("POST", path_of("Job", namespace), job(VOLUMES[field](path)), dryRun="All")
        assert (response.code, response.message) == (
            422,
            f'Job.batch "j" is invalid: [spec.template.spec.volumes[0].{field}: {text}, {unmounted}]',
        )
