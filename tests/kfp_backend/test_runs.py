"""Runs that succeed: their TrainJobs, artifacts, cache, settings and sizes."""

from __future__ import annotations

import json

import pytest

from tests.kfp_backend import pipelines
from tests.kfp_backend.pipeline_run import stored_size

pytestmark = pytest.mark.timeout(1000)


def test_the_workflow_has_the_defaults_of_the_manifests(start):
    """Argo applies KFP's configuration, so a lost step is retried and an ended Workflow is deleted after an hour."""
    workflow = start(pipelines.short).wait_until_ended()
    spec = workflow["status"].get("storedWorkflowTemplateSpec") or workflow["spec"]
    assert spec["templateDefaults"]["retryStrategy"] == {"limit": "2", "retryPolicy": "OnError"}
    assert spec["ttlStrategy"]["secondsAfterCompletion"] == 3600


def test_a_repeated_run_is_cached(start):
    first = start(pipelines.cached, cache=True)
    assert first.wait_until_ended()["status"]["phase"] == "Succeeded"
    second = start(pipelines.cached, cache=True)
    assert second.wait_until_ended()["status"]["phase"] == "Succeeded"
    assert (len(first.list_trainjobs()), len(second.list_trainjobs())) == (1, 0)
    assert second.list_pods("system-container-impl") == []


def test_settings_of_the_task_reach_the_training(start, backend):
    run = start(pipelines.settings)
    assert run.wait_until_ended()["status"]["phase"] == "Succeeded"
    [launcher], [training] = run.list_pods("system-container-impl"), run.list_training_pods()
    [container] = training["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "1G", "nvidia.com/gpu": "1"}
    selector = {"secretKeyRef": {"name": "extra", "key": "password"}}
    variables = {one["name"]: one for one in container["env"]}
    assert variables["PASSWORD"]["valueFrom"]["secretKeyRef"].items() >= selector["secretKeyRef"].items()
    assert variables["PLAIN"]["value"] == "plain-value"
    assert {"/settings", "/shared"} <= {mount["mountPath"] for mount in container["volumeMounts"]}
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert any(one.items() >= toleration.items() for one in training["spec"]["tolerations"])
    assert training["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux"
    text = json.dumps(launcher["spec"]["containers"])
    main = next(one for one in launcher["spec"]["containers"] if one["name"] == "main")
    assert not {"PASSWORD", "PLAIN"} & {one["name"] for one in main["env"]}
    assert not {"/settings", "/shared"} & {mount["mountPath"] for mount in main["volumeMounts"]}
    assert "nvidia.com/gpu" not in main["resources"].get("limits", {})
    assert "password-of-the-test" not in text
    assert "password-of-the-test plain-value" in run.read_log(launcher)


@pytest.mark.parametrize("code", ["image", "configmap"])
@pytest.mark.parametrize(
    ("pipeline", "limit"),
    [
        (pipelines.short, 200_000),
        (pipelines.long_argument, 1_000_000),  # as long as a function may be
        (pipelines.ten_steps, 1_000_000),
        (pipelines.ten_steps_and_loop, 1_000_000),
    ],
    ids=["one step", "long argument", "ten steps", "ten steps and a loop of twenty"],
)
def test_the_workflow_fits(start, pipeline, limit, code):
    """The stored Workflow stays below the limit of Argo and etcd, and the run ends."""
    run = start(pipeline, code=code)
    workflow = run.wait_until_ended(900)
    size, without_fields = stored_size(workflow)
    print(f"Workflow of {pipeline.name}, code from {code}: {size} bytes, {without_fields} without managedFields")
    assert workflow["status"]["phase"] == "Succeeded"
    assert size < limit
