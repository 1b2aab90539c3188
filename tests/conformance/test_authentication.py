"""Authentication with service account tokens, and requests that every identity may send."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.conformance.idle_objects import error_of
from tests.support.accounts import (
    access_review,
    create_account,
    create_token,
    grant,
    is_allowed,
    request_token,
    wait_until_allowed,
)
from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until

GROUP = "trainer.kubeflow.org"
UNAUTHORIZED = (401, "Unauthorized", "Unauthorized")
HEALTH_PATHS = ("/version", "/healthz", "/livez", "/readyz")
DISCOVERY_PATHS = (
    "/api",
    "/apis",
    f"/apis/{GROUP}",
    f"/apis/{GROUP}/v1alpha1",
    "/openapi/v3",
    f"/openapi/v3/apis/{GROUP}/v1alpha1",
)


@pytest.fixture
def restricted_client(client, namespace):
    """Return a client with the token of a service account that has no permissions."""
    create_account(client, namespace)
    with closing(client.with_token(create_token(client, namespace))) as opened:
        yield opened


@pytest.fixture
def anonymous(client):
    """Return a client that sends no credentials."""
    with closing(client.with_token("")) as opened:
        yield opened


def forbidden_response(user, verb, resource, namespace, name=""):
    plural = resource.partition("/")[0]
    group = GROUP if plural in ("trainjobs", "clustertrainingruntimes") else ""
    object_text = (f"{plural}.{group}" if group else plural) + (f' "{name}"' if name else "")
    scope = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    denial = f'cannot {verb} resource "{resource}" in API group "{group}" {scope}'
    return 403, "Forbidden", f'{object_text} is forbidden: User "{user}" {denial}'


def requests_and_permissions(namespace):
    """Return requests, each with the attributes by which RBAC authorizes it."""
    jobs, job = path_of("TrainJob", namespace), path_of("TrainJob", namespace, "x")
    return [
        (("GET", jobs), ("list", "trainjobs", namespace)),
        (("GET", f"{jobs}?watch=1"), ("watch", "trainjobs", namespace)),
        (("GET", f"{jobs}?fieldSelector=metadata.name%3Dx"), ("list", "trainjobs", namespace, "x")),
        (("POST", jobs), ("create", "trainjobs", namespace)),
        (("DELETE", jobs), ("deletecollection", "trainjobs", namespace)),
        (("GET", job), ("get", "trainjobs", namespace, "x")),
        (("PUT", job), ("update", "trainjobs", namespace, "x")),
        (("PATCH", job), ("patch", "trainjobs", namespace, "x")),
        (("DELETE", job), ("delete", "trainjobs", namespace, "x")),
        (("PATCH", f"{job}/status"), ("patch", "trainjobs/status", namespace, "x")),
        (("GET", path_of("TrainJob")), ("list", "trainjobs", "")),
        (("GET", path_of("Pod", namespace, "x", "log")), ("get", "pods/log", namespace, "x")),
        (("GET", path_of("ClusterTrainingRuntime", None, "x")), ("get", "clustertrainingruntimes", "", "x")),
        (("GET", "/api/v1/namespaces"), ("list", "namespaces", "")),
        (("GET", f"/api/v1/namespaces/{namespace}"), ("get", "namespaces", namespace, namespace)),
    ]


def test_requests_without_permission_are_forbidden(client, namespace, restricted_client, anonymous):
    """A request without the RBAC permission gets 403. A request without a token has the user system:anonymous."""
    for sender, user in (
        (restricted_client, f"system:serviceaccount:{namespace}:robot"),
        (anonymous, "system:anonymous"),
    ):
        responses = [error_of(sender.send_raw(*request, b"")) for request, _ in requests_and_permissions(namespace)]
        permissions = [attributes for _, attributes in requests_and_permissions(namespace)]
        assert responses == [forbidden_response(user, *attributes) for attributes in permissions]
        no_metrics = (403, "Forbidden", f'forbidden: User "{user}" cannot get path "/metrics"')
        assert error_of(sender.request("GET", "/metrics")) == no_metrics


def test_health_is_public_and_discovery_needs_a_user(restricted_client, anonymous):
    """Health and version need no authentication. Discovery needs an authenticated user."""
    for sender in (restricted_client, anonymous):
        for path in HEALTH_PATHS:  # these fail while etcd is slow to respond
            wait_until(lambda send=sender.request, path=path: send("GET", path).code == 200)
    assert [restricted_client.request("GET", path).code for path in DISCOVERY_PATHS] == [200] * 6
    assert [anonymous.request("GET", path).code for path in DISCOVERY_PATHS] == [403] * 6
    text = f'forbidden: User "system:anonymous" cannot get path "{DISCOVERY_PATHS[-1]}"'
    assert error_of(anonymous.request("GET", DISCOVERY_PATHS[-1])) == (403, "Forbidden", text)


@pytest.mark.parametrize("token_text", ["nonsense", "two words", "for others"])
def test_wrong_tokens_are_unauthorized(client, namespace, token_text):
    """An invalid token, or a token for another recipient, gets 401, even for paths without authentication."""
    create_account(client, namespace)
    for_others = token_text == "for others"
    token = create_token(client, namespace, audiences=["https://example.org"]) if for_others else token_text
    with closing(client.with_token(token)) as stranger:
        for path in (path_of("TrainJob", namespace), "/version", "/nope"):
            assert error_of(stranger.request("GET", path)) == UNAUTHORIZED


def test_token_request(client, namespace):
    """A service account token lasts one hour by default, or as long as requested, at least ten minutes."""
    create_account(client, namespace)
    usual = request_token(client, namespace, {}).body
    assert (usual["kind"], usual["spec"]["expirationSeconds"]) == ("TokenRequest", 3600)
    assert usual["status"]["token"] and usual["status"]["expirationTimestamp"]
    assert request_token(client, namespace, {"expirationSeconds": 600}).body["spec"]["expirationSeconds"] == 600
    invalid = 'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: '
    short, long = (
        "may not specify a duration less than 10 minutes",
        "may not specify a duration larger than 2^32 seconds",
    )
    pod = {"kind": "Pod", "apiVersion": "v1", "name": "x"}
    rows = [
        ({"expirationSeconds": 599}, 422, f"{invalid}599: {short}"),
        ({"expirationSeconds": 0}, 422, f"{invalid}0: {short}"),
        ({"expirationSeconds": 2**32 + 1}, 422, f"{invalid}{2**32 + 1}: {long}"),
        ({"boundObjectRef": pod}, 404, 'pods "x" not found'),
        ({"boundObjectRef": {**pod, "kind": "Foo"}}, 400, "cannot bind token to object of type /v1, Kind=Foo"),
    ]
    assert [(spec, *error_of(request_token(client, namespace, spec))[::2]) for spec, _, _ in rows] == rows
    assert request_token(client, namespace, {"expirationSeconds": "x"}).code == 400
    nobody = error_of(request_token(client, namespace, {}, "nobody"))
    assert nobody == (404, "NotFound", 'serviceaccounts "nobody" not found')


def test_a_token_is_invalid_after_its_account_is_deleted(client, namespace):
    """A token of a deleted service account gets 401, even if a service account with that name is created again."""
    create_account(client, namespace)
    tokens = [create_token(client, namespace) for _ in range(2)]
    client.delete("ServiceAccount", namespace, "robot")
    with closing(client.with_token(tokens[0])) as gone:
        # The API server receives the deletion by a watch, and caches an accepted token for ten seconds.
        wait_until(lambda: error_of(gone.request("GET", "/version")) == UNAUTHORIZED)
    create_account(client, namespace)
    with closing(client.with_token(tokens[1])) as former:
        assert error_of(former.request("GET", "/version")) == UNAUTHORIZED


def test_access_reviews(client, namespace, restricted_client, anonymous):
    """An authenticated user can review its own access. New permissions apply soon, in their namespace only."""
    job = (GROUP, "trainjobs")
    assert not is_allowed(restricted_client, namespace, "create", *job)
    grant(client, namespace, [{"apiGroups": [GROUP], "resources": ["trainjobs"], "verbs": ["create", "list"]}])
    wait_until_allowed(restricted_client, namespace, "create", *job)
    assert is_allowed(restricted_client, namespace, "list", *job) and not is_allowed(
        restricted_client, namespace, "delete", *job
    )
    assert not is_allowed(restricted_client, "default", "create", *job) and not is_allowed(
        restricted_client, namespace, "list", GROUP, "trainjobs/status"
    )
    assert restricted_client.request("GET", path_of("TrainJob", namespace)).code == 200
    assert restricted_client.request("GET", path_of("TrainJob", "default")).code == 403
    body = access_review({"namespace": namespace, "verb": "get", "group": "", "resource": "pods"})
    assert anonymous.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body).code == 403
