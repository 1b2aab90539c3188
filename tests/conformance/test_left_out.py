"""Features of real API servers that the laptop cluster does not have; docs/reference/laptop-cluster.md lists them."""

from __future__ import annotations

import json

import pytest

from tests.conformance.idle_objects import create_objects, error_of, idle_object
from tests.support.kubernetes_client import path_of

APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"


def test_server_side_apply(client, namespace):
    """An object can be created and changed by server-side apply."""
    body = json.dumps(idle_object("Secret", "a", labels={"a": "b"})).encode()
    response = client.send_raw("PATCH", path_of("Secret", namespace, "a"), body, APPLY, fieldManager="me")
    assert (response.code, response.body["metadata"]["labels"]) == (201, {"a": "b"})


@pytest.mark.differs("laptop", "the owners of fields are not recorded: server-side apply only merges")
def test_managed_fields(client, namespace):
    """metadata.managedFields names the manager of each field."""
    (made,) = create_objects(client, namespace, "Secret", "a", labels={"a": "b"})
    assert made["metadata"]["managedFields"][0]["operation"] == "Update"


def test_strategic_merge_patch(client, namespace):
    """A strategic merge patch adds items to a list such as finalizers, instead of replacing the list."""
    create_objects(client, namespace, "Secret", "a", finalizers=["example.org/a"])
    change = {"metadata": {"finalizers": ["example.org/b"]}}
    response = client.request("PATCH", path_of("Secret", namespace, "a"), change, content_type=STRATEGIC)
    client.remove_finalizers("Secret", namespace, "a")
    assert sorted(response.body["metadata"]["finalizers"]) == ["example.org/a", "example.org/b"]


def test_yaml_bodies(client, namespace):
    """A body can be YAML."""
    response = client.send_raw("POST", path_of("Secret", namespace), b"metadata:\n  name: a\n", "application/yaml")
    assert (response.code, response.body["metadata"]["name"]) == (201, "a")


@pytest.mark.differs("laptop", "only unknown fields of TrainJobs are detected")
def test_strict_validation_of_built_in_kinds(client, namespace):
    """With strict field validation, unknown fields of built-in kinds are rejected, too."""
    body = {**idle_object("Secret", "a"), "bogus": 1}
    text = 'Secret in version "v1" cannot be handled as a Secret: strict decoding error: unknown field "bogus"'
    response = client.request("POST", path_of("Secret", namespace), body, fieldValidation="Strict")
    assert error_of(response) == (400, "BadRequest", text)


@pytest.mark.differs("laptop", "the last of two equal names counts, as in most JSON parsers, without an error")
def test_duplicate_fields(client, namespace):
    """With strict field validation, a duplicate field is rejected."""
    body = json.dumps(idle_object("TrainingRuntime", "a")).encode()[:-1] + b', "kind": "TrainingRuntime"}'
    response = client.send_raw("POST", path_of("TrainingRuntime", namespace), body, fieldValidation="Strict")
    problem = 'strict decoding error: duplicate field "kind"'
    text = f'TrainingRuntime in version "v1alpha1" cannot be handled as a TrainingRuntime: {problem}'
    assert error_of(response) == (400, "BadRequest", text)


def test_certificate_authority(client, namespace):
    """Every namespace gets a ConfigMap with the API server's certificate authority."""
    found = client.wait_for("ConfigMap", namespace, "kube-root-ca.crt", bool)
    assert found["data"]["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")


def test_self_subject_review(client):
    """An authenticated user can request a SelfSubjectReview of itself."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    response = client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body)
    assert (response.code, bool(response.body["status"]["userInfo"]["groups"])) == (201, True)
