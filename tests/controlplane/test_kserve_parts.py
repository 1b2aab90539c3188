"""Tests of KServe's CustomResourceDefinitions on the control plane."""

from __future__ import annotations

import pytest

from control_plane import ControlPlane
from leftovers import all_ended, list_processes_and_ports, open_client
from tests.support.kubernetes_client import path_of

INFERENCE_SERVICE = {
    "apiVersion": "serving.kserve.io/v1beta1",
    "kind": "InferenceService",
    "metadata": {"name": "tuned"},
    "spec": {
        "predictor": {
            "canaryTrafficPercent": 10,
            "model": {"modelFormat": {"name": "huggingface"}, "storageUri": "s3://models/tuned/1"},
        }
    },
}
LLM_INFERENCE_SERVICE = {
    "apiVersion": "serving.kserve.io/v1alpha1",
    "kind": "LLMInferenceService",
    "metadata": {"name": "tuned"},
    "spec": {
        "model": {
            "uri": "hf://org/base",
            "name": "base",
            "lora": {"adapters": [{"name": "tuned", "uri": "s3://models/tuned/1"}]},
        }
    },
}
KINDS = {
    "clusterservingruntimes": "v1alpha1",
    "inferenceservices": "v1beta1",
    "llminferenceserviceconfigs": "v1alpha1",
    "llminferenceservices": "v1alpha1",
    "servingruntimes": "v1alpha1",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Yield a client of a control plane with KServe, or skip the tests with the reason."""
    if reason := ControlPlane.unavailable_reason(kserve=True):
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("kserve") / "state", kserve=True) as cluster:
        with open_client(cluster) as opened:
            yield opened
        trail = list_processes_and_ports(cluster)
    assert all_ended(*trail)


def change(item, **predictor):
    """Return a copy of an InferenceService with further fields of its predictor."""
    return {**item, "spec": {"predictor": {**item["spec"]["predictor"], **predictor}}}


def test_the_definitions_are_established_without_conversion_webhooks(client):
    """The five definitions are established, and no webhook is needed to read an object of an older version."""
    definitions = {
        item["spec"]["names"]["plural"]: item
        for item in client.list("CustomResourceDefinition", None)
        if item["spec"]["group"] == "serving.kserve.io"
    }
    assert {name: item["spec"]["versions"][0]["name"] for name, item in definitions.items()} == KINDS
    for item in definitions.values():
        assert item["spec"]["conversion"] == {"strategy": "None"}
        assert ("Established", "True") in [(one["type"], one["status"]) for one in item["status"]["conditions"]]


@pytest.mark.parametrize("item", [INFERENCE_SERVICE, LLM_INFERENCE_SERVICE], ids=lambda item: item["kind"])
def test_a_service_is_accepted(client, item):
    """A service is stored with all of its fields, and its status is a subresource."""
    created = client.create({**item, "status": {"url": "http://ignored"}}, "default")
    assert created["spec"] == item["spec"]
    assert "url" not in created.get("status", {})
    status = {"observedGeneration": 1, "url": "http://127.0.0.1:1"}
    changed = client.patch(item["kind"], "default", "tuned", {"status": status}, "status")
    assert changed["status"]["url"] == "http://127.0.0.1:1"
    assert changed["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (change(INFERENCE_SERVICE, canaryPercent=10), 'unknown field "spec.predictor.canaryPercent"'),
        (change(INFERENCE_SERVICE, canaryTrafficPercent="10"), "spec.predictor.canaryTrafficPercent in body must be"),
        (change(INFERENCE_SERVICE, model={"modelFormat": {}}), "spec.predictor.model.modelFormat.name: Required"),
        ({**LLM_INFERENCE_SERVICE, "spec": {"model": {"name": "base"}}}, "spec.model.uri: Required value"),
        ({**LLM_INFERENCE_SERVICE, "spec": {"model": {"url": "hf://a/b"}}}, 'unknown field "spec.model.url"'),
    ],
)
def test_a_service_with_a_wrong_field_is_refused(client, item, reason):
    """The definitions are the full ones: the API server refuses unknown fields, wrong types and missing fields."""
    wrong = {**item, "metadata": {"name": "wrong"}}
    response = client.request("POST", path_of(item["kind"], "default"), wrong, fieldValidation="Strict")
    assert response.code in (400, 422)
    assert reason in response.message
    assert client.find(item["kind"], "default", "wrong") is None
