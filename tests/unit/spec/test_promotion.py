"""Requests for promotions and rollbacks: what is refused, and what their TrainJobs get."""

from __future__ import annotations

import json

import pytest

from trainjob.errors import InvalidSpec
from trainjob.manifest import spec_hash
from trainjob.manifest.steps import to_trainjob
from trainjob.spec import Promote, Rollback
from trainjob.spec.volumes import Volume

MODEL = "s3://acme/models/tickets/7"
MLFLOW = {"backend": "mlflow", "tracking_uri": "https://mlflow.example.org", "model": "tickets"}


def deploy(uri):
    print(uri)


def options(step, **more):
    """Return the program's arguments by name."""
    action, *words = to_trainjob(step, **more).trainer.args
    return {"action": action, **dict(zip(words[::2], words[1::2], strict=False))}


@pytest.mark.parametrize(
    ("fields", "field", "rule"),
    [
        ({"model": "models/7"}, "model", "it must be an address such as s3://bucket/models/7"),
        ({"model": "/workspace/models/7"}, "workspace", "name the PersistentVolumeClaim with /workspace/models/7"),
        ({"model": "/workspace/m", "workspace": {"node_path": "/data"}}, "workspace", "name the PersistentVolumeClaim"),
        ({"service": None}, "service", "name what serves the model"),
        ({"service": None, "command": ["deploy"], "registry": MLFLOW}, "service", "name what serves the model"),
        ({"service": "Tickets"}, "service", "lower case letters"),
        ({"command": ["deploy"], "function": deploy}, "function", "give only one of command and function"),
        ({"command": []}, "command", "at least one word"),
        ({"function": len}, "function", "its source can't be read"),
        ({"function": lambda: 1}, "function", "defined with `def`"),
        ({"function": "x = 1"}, "function", "the text of one function"),
        ({"adapter": "tickets"}, "adapter", "only an LLMInferenceService has adapters"),
        ({"canary_percent": 0}, "canary_percent", "it must be at least 1"),
        ({"canary_percent": 100}, "canary_percent", "it must be at most 99"),
        ({"canary_percent": 5, "service_kind": "LLMInferenceService"}, "canary_percent", "only an InferenceService"),
        ({"canary_percent": 5, "command": ["deploy"]}, "canary_percent", "only an InferenceService"),
        ({"smoke_request": {"url": "v1/models"}}, "smoke_request.url", "it must be a path such as /v1/models/tickets"),
        ({"smoke_request": {"url": "/v1"}, "command": ["deploy"]}, "smoke_request.url", "it must be a whole URL"),
        ({"registry": {**MLFLOW, "alias": "best"}}, "registry.alias", "give it as alias of the step"),
        ({"time_limit": 0}, "time_limit", "at least one second"),
        ({"secret": "deploy-token"}, "secret", "name the keys that the command or function needs"),
        ({"program": "image"}, "image", "name one with trainjob"),
    ],
)
def test_wrong_fields_are_named(fields, field, rule):
    with pytest.raises(InvalidSpec) as caught:
        Promote(**{"model": MODEL, "service": "tickets", **fields})
    [problem] = caught.value.problems
    assert problem.field == field
    assert rule in str(problem)


def test_a_token_in_a_function_is_refused():
    with pytest.raises(InvalidSpec) as caught:
        Promote(model=MODEL, service="tickets", function="def deploy(uri):\n    use('hf_" + "a" * 34 + "')\n")
    assert "hf_aaa" not in str(caught.value)


def test_the_pod_gets_an_account_and_its_token():
    job = to_trainjob(Promote(model=MODEL, service="tickets"))
    assert job.placement.service_account_name == "trainjob-promotion"
    [volume] = job.volumes
    assert [next(iter(source)) for source in volume.source["projected"]["sources"]] == [
        "serviceAccountToken",
        "configMap",
        "downwardAPI",
    ]
    own = {"service_account_name": "releases", "node_selector": {"pool": "cpu"}}
    data = Volume(name="data", source={"emptyDir": {}}, mount_path="/data")
    job = to_trainjob(Promote(model=MODEL, service="tickets", placement=own, volumes=[data]))
    assert (job.placement.service_account_name, job.placement.node_selector) == ("releases", {"pool": "cpu"})
    assert [each.name for each in job.volumes] == ["data", "trainjob-api"]


def test_a_folder_of_the_workspace_is_served_from_its_claim():
    workspace = {"claim": "team", "sub_path": "tickets"}
    step = Promote(model="/workspace/models/7", service="tickets", workspace=workspace)
    assert options(step)["--model"] == "pvc://team/tickets/models/7"


def test_the_registry_is_named_without_its_secret():
    registry = {**MLFLOW, "secret": {"name": "login", "keys": {"MLFLOW_TRACKING_TOKEN": "token"}}}
    step = Promote(model=MODEL, registry=registry)
    given = options(step, run="0123", workflow_run="airflow/nightly/1")
    assert json.loads(given["--registry"]) == {"tracking_uri": "https://mlflow.example.org", "model": "tickets"}
    assert (given["--kind"], given["--key"], given["--run"]) == ("Registry", "0123", "airflow/nightly/1")
    assert to_trainjob(step).trainer.env["MLFLOW_TRACKING_TOKEN"].name == "login"
    undo = options(Rollback(registry=registry, any_run=True))
    assert (undo["action"], undo["--service"]) == ("rollback", given["--service"])


def test_a_function_and_its_text_are_the_same_request():
    step = Promote(model=MODEL, service="tickets", function=deploy)
    same = Promote(model=MODEL, service="tickets", function=step.function)
    assert spec_hash(step) == spec_hash(same)
    changed = Promote(model=MODEL, service="tickets", function="def deploy(address):\n    print(address)\n")
    assert spec_hash(step) != spec_hash(changed)
    python, option, program = json.loads(options(step)["--command"])
    assert (python, option) == ("python", "-c")
    assert program.endswith("deploy(os.environ['MODEL_URI'])\n")
