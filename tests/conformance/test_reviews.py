"""Reviews of tokens and of other users, Leases, categories and definitions: what tools beside kubectl use."""

from __future__ import annotations

import pytest

from tests.conformance.admission_cases import ResponseSummary
from tests.support.accounts import create_account, create_token

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def review(client, path, **spec):
    kinds = {TOKEN_REVIEWS: "TokenReview", ACCESS_REVIEWS: "SubjectAccessReview"}
    version = path.removeprefix("/apis/").rpartition("/")[0]
    return client.request("POST", path, {"apiVersion": version, "kind": kinds[path], "spec": spec})


def test_token_review(client, namespace):
    """A TokenReview names the user of a token. An invalid token, or one for another audience, has none."""
    create_account(client, namespace)
    token = create_token(client, namespace)
    status = review(client, TOKEN_REVIEWS, token=token).body["status"]
    name = f"system:serviceaccount:{namespace}:robot"
    assert (status["authenticated"], status["user"]["username"]) == (True, name)
    assert "system:serviceaccounts" in status["user"]["groups"]
    invalid = {"user": {}, "error": "invalid bearer token"}
    assert review(client, TOKEN_REVIEWS, token="bad").body["status"] == invalid
    assert "authenticated" not in review(client, TOKEN_REVIEWS, token=token, audiences=["x"]).body["status"]
    missing = review(client, TOKEN_REVIEWS)
    assert ResponseSummary.from_response(missing) == ResponseSummary(
        400, "BadRequest", "token is required for TokenReview in authentication"
    )


def test_subject_access_review(client, namespace):
    """A SubjectAccessReview says whether another user may do something."""
    action = {"verb": "create", "group": "trainer.kubeflow.org", "resource": "trainjobs", "namespace": namespace}
    allowed = [
        review(client, ACCESS_REVIEWS, user="a", resourceAttributes=action, **more).body["status"]["allowed"]
        for more in ({}, {"groups": ["system:masters"]})
    ]
    assert allowed == [False, True]
    nobody = review(client, ACCESS_REVIEWS, resourceAttributes=action)
    assert nobody.code == 422
    assert "spec.user: Invalid value" in nobody.message


def test_leases(client, namespace):
    """Leases are stored, with times of microseconds."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000001Z"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "leader"}, "spec": spec}
    assert client.request("POST", path, lease).code == 201
    assert client.request("GET", f"{path}/leader").body["spec"] == spec


def test_categories(client):
    """`kubectl get all` finds pods, services and Jobs by their category in discovery."""
    found = {
        resource["name"]
        for path in ("/api/v1", "/apis/batch/v1", "/apis/trainer.kubeflow.org/v1alpha1")
        for resource in client.request("GET", path).body["resources"]
        if "all" in resource.get("categories", ())
    }
    assert found >= {"pods", "services", "jobs"}
    assert not found & {"trainjobs", "configmaps", "secrets"}


@pytest.mark.since("2.3")
def test_definitions(client):
    """The definitions of the custom kinds can be read; that of TrainJobs has the schema of the API."""
    root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    items = {item["metadata"]["name"]: item for item in client.request("GET", root).body["items"]}
    kinds = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
    assert {*(f"{kind}.trainer.kubeflow.org" for kind in kinds), "jobsets.jobset.x-k8s.io"} <= set(items)
    [version] = items["trainjobs.trainer.kubeflow.org"]["spec"]["versions"]
    assert version["subresources"] == {"status": {}}
    trainer = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["trainer"]
    assert trainer["properties"]["numNodes"]["format"] == "int32"
    path = "/api/v1/namespaces/kubeflow-system/configmaps/kubeflow-trainer-public"
    assert client.request("GET", path).body["data"]["kubeflow_trainer_version"].startswith("v2.3")
