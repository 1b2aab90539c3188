"""Fuzz tests of the laptop cluster's API server: it executes each request, or refuses it with a 4xx Status."""

from __future__ import annotations

import http.client
import json
from urllib.parse import urlencode

import pytest
from hypothesis import strategies as st

from tests.chaos.fuzz.fuzzing import JSON, damaged_json, edge_cases, fuzz
from tests.chaos.fuzz.objects import POD
from trainjob import TrainJob
from trainjob.manifest import build_trainjob
from trainjob_local.apiserver import ApiServer, Registry

TOKEN = "the-admin-token"
JOBS = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
PODS = "/api/v1/namespaces/default/pods"
JOB = {
    "trainer": {
        "image": "i",
        "command": ["a"],
        "num_nodes": 2,
        "num_proc_per_node": 1,
        "env": {"A": {"name": "s", "key": "k"}},
        "resources_per_node": {"cpu": "1"},
    },
    "volumes": [{"name": "v", "source": {"emptyDir": {}}, "mount_path": "/v"}],
    "placement": {"node_selector": {"a": "b"}},
}
VALID_TRAINJOB = build_trainjob(
    TrainJob.from_object(JOB), name="j", namespace="default", labels={"a": "b"}, annotations={"c": "d"}
)
VALID_TRAINJOB["metadata"] |= {"finalizers": [], "ownerReferences": []}
VALID_TRAINJOB["spec"] |= {
    "suspend": True,
    "initializer": {"dataset": {"storageUri": "hf://a/b", "secretRef": {"name": "s"}}},
}
SERVERS: list = []


@pytest.fixture(scope="module", autouse=True)
def server():
    """Run an API server without controllers."""
    registry = Registry()
    opened = ApiServer(registry, admin_token=TOKEN, log_source=None, port=0)
    opened.start()
    SERVERS.append(opened)
    yield
    SERVERS.clear()
    opened.stop()
    registry.close()


def send_request(method, path, body=b"", content_type="application/json", *, seconds=60.0):
    """Send a request, and return the status code of its response."""
    connection = http.client.HTTPConnection("127.0.0.1", SERVERS[0].port, timeout=seconds)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in (
            ("Authorization", f"Bearer {TOKEN}"),
            ("Content-Type", content_type),
            ("Content-Length", len(body)),
        ):
            connection.putheader(name, str(value))
        connection.endheaders(body)
        response = connection.getresponse()
        content = response.read()
    finally:
        connection.close()
    if response.status >= 500:  # a real API server also sends some of these; a bug here is an internal error
        assert b"Internal error occurred" not in content or b"there is no kubelet" in content, content
    return f"{response.status}"


def to_json(value):
    return json.dumps(value).encode()


BODIES = st.binary(max_size=40) | st.sampled_from([b"[" * 100_000, b'{"a":' * 20_000, b"\xff", b"NaN", b""])


@fuzz(
    "laptop API server: TrainJobs to create",
    250,
    job=damaged_json(VALID_TRAINJOB),
    mode=st.sampled_from(["Strict", "Warn", "Ignore"]),
)
def test_a_trainjob_is_created_or_refused(job, mode):
    return send_request("POST", f"{JOBS}?dryRun=All&fieldValidation={mode}", to_json(job))


@fuzz(
    "laptop API server: pods to create", 150, pod=damaged_json({**POD, "metadata": {"name": "p"}, "spec": POD["spec"]})
)
def test_a_pod_is_created_or_refused(pod):
    return send_request("POST", f"{PODS}?dryRun=All", to_json(pod))


@fuzz(
    "laptop API server: arbitrary bodies",
    150,
    body=BODIES | (JSON | edge_cases).map(to_json) | st.binary(max_size=80).map(lambda rest: b"k8s\x00" + rest),
    path=st.sampled_from([JOBS, PODS]),
    kind=st.sampled_from(["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]),
)
def test_any_body_is_handled(body, path, kind):
    return send_request("POST", path, body, kind)


PATCHES = st.sampled_from(
    [
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "text/x",
        "",
    ]
)


@fuzz(
    "laptop API server: patches and deletions",
    200,
    body=BODIES | damaged_json(VALID_TRAINJOB).map(to_json) | JSON.map(to_json),
    kind=PATCHES,
    method=st.sampled_from(["PATCH", "PUT", "DELETE"]),
    path=st.sampled_from([f"{JOBS}/j?fieldManager=me", f"{PODS}/p?fieldManager=me"]),
)
def test_any_change_is_handled(body, kind, method, path):
    send_request("POST", JOBS, to_json({**VALID_TRAINJOB, "spec": {"runtimeRef": {"name": "r"}, "suspend": True}}))
    send_request("POST", PODS, to_json({**POD, "metadata": {"name": "p"}, "spec": POD["spec"]}))
    return send_request(method, path, body, kind)


WORDS = st.sampled_from(
    [
        "labelSelector",
        "fieldSelector",
        "limit",
        "continue",
        "resourceVersion",
        "timeoutSeconds",
        "fieldValidation",
        "dryRun",
    ]
)
VALUES = st.text("abc=!,()<>.-_/ \u00b2\n0123456789", max_size=12) | st.sampled_from(
    ["9" * 5000, "-1", "a in (", "a notin (b", "metadata.name=", "%", "é"]
)


@fuzz(
    "laptop API server: queries",
    300,
    query=st.lists(st.tuples(WORDS, VALUES), max_size=3),
    path=st.sampled_from([JOBS, PODS, f"{JOBS}/j", "/api/v1/events"]),
)
def test_any_query_is_handled(query, path):
    return send_request("GET", f"{path}?{urlencode(query)}")


@fuzz(
    "laptop API server: paths",
    200,
    parts=st.lists(
        st.sampled_from(
            [
                "api",
                "apis",
                "v1",
                "namespaces",
                "default",
                "..",
                "%2e%2e",
                "%00",
                "pods",
                "log",
                "status",
                "*",
                "a" * 300,
                "%ff",
                "openapi",
                "v3",
            ]
        ),
        max_size=7,
    ),
    method=st.sampled_from(["GET", "POST", "DELETE", "PATCH", "PUT", "HEAD", "OPTIONS"]),
)
def test_any_path_is_handled(parts, method):
    return send_request(method, "/" + "/".join(parts), b"{}" if method in ("POST", "PUT", "PATCH") else b"")
