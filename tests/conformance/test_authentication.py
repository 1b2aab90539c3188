"""Who somebody is: tokens of service accounts, wrong ones, none; and what everybody may ask."""

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
    """A service account without rights, by its token."""
    create_account(client, namespace)
    with closing(client.as_bearer(create_token(client, namespace))) as opened:
        yield opened


@pytest.fixture
def anonymous(client):
    """Somebody who says nothing."""
    with closing(client.as_bearer("")) as opened:
        yield opened


def forbidden_response(user, verb, resource, where, name=""):
    plural = resource.partition("/")[0]
    group = GROUP if plural in ("trainjobs", "clustertrainingruntimes") else ""
    named = (f"{plural}.{group}" if group else plural) + (f' "{name}"' if name else "")
    place = f'in the namespace "{where}"' if where else "at the cluster scope"
    what = f'cannot {verb} resource "{resource}" in API group "{group}" {place}'
    return 403, "Forbidden", f'{named} is forbidden: User "{user}" {what}'


def requests_and_rights(namespace):
    """Requests, and as what RBAC sees them."""
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


def test_without_rights(client, namespace, restricted_client, anonymous):
    """Who has no right is refused with 403 and told what he lacks; who says nothing is system:anonymous."""
    for who, user in ((restricted_client, f"system:serviceaccount:{namespace}:robot"), (anonymous, "system:anonymous")):
        answers = [error_of(who.send(*asked, b"")) for asked, _ in requests_and_rights(namespace)]
        assert answers == [forbidden_response(user, *action) for _, action in requests_and_rights(namespace)]
        path = (403, "Forbidden", f'forbidden: User "{user}" cannot get path "/metrics"')
        assert error_of(who.ask("GET", "/metrics")) == path


def test_what_everybody_may_ask(restricted_client, anonymous):
    """Health and version answer everybody; who the server is and what it serves, everybody who has a name."""
    for somebody in (restricted_client, anonymous):
        for path in HEALTH_PATHS:  # not healthy while etcd is slow to answer
            wait_until(lambda ask=somebody.ask, path=path: ask("GET", path).code == 200)
    assert [restricted_client.ask("GET", path).code for path in DISCOVERY_PATHS] == [200] * 6
    assert [anonymous.ask("GET", path).code for path in DISCOVERY_PATHS] == [403] * 6
    text = f'forbidden: User "system:anonymous" cannot get path "{DISCOVERY_PATHS[-1]}"'
    assert error_of(anonymous.ask("GET", DISCOVERY_PATHS[-1])) == (403, "Forbidden", text)


@pytest.mark.parametrize("what", ["nonsense", "two words", "for others"])
def test_wrong_tokens(client, namespace, what):
    """A token that is none, or not for this server, is refused with 401, even where nobody needs one."""
    create_account(client, namespace)
    token = create_token(client, namespace, audiences=["https://example.org"]) if what == "for others" else what
    with closing(client.as_bearer(token)) as stranger:
        for path in (path_of("TrainJob", namespace), "/version", "/nope"):
            assert error_of(stranger.ask("GET", path)) == UNAUTHORIZED


def test_token_request(client, namespace):
    """A token lasts an hour or as long as asked for, ten minutes at least."""
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


def test_a_token_ends_with_its_account(client, namespace):
    """A token of a service account that is gone is refused with 401, also when one of that name is made anew."""
    create_account(client, namespace)
    tokens = [create_token(client, namespace) for _ in range(2)]
    client.delete("ServiceAccount", namespace, "robot")
    with closing(client.as_bearer(tokens[0])) as gone:
        # The API server learns of the deletion by a watch, and believes an accepted token for ten seconds.
        wait_until(lambda: error_of(gone.ask("GET", "/version")) == UNAUTHORIZED)
    create_account(client, namespace)
    with closing(client.as_bearer(tokens[1])) as former:
        assert error_of(former.ask("GET", "/version")) == UNAUTHORIZED


def test_what_may_i(client, namespace, restricted_client, anonymous):
    """Everybody with a name may ask what he may do; new rights count a moment later, in their namespace only."""
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
    assert restricted_client.ask("GET", path_of("TrainJob", namespace)).code == 200
    assert restricted_client.ask("GET", path_of("TrainJob", "default")).code == 403
    body = access_review({"namespace": namespace, "verb": "get", "group": "", "resource": "pods"})
    assert anonymous.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body).code == 403
