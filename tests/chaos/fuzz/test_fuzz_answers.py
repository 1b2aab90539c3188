"""Fuzz tests of HTTP responses: each request returns a valid result or raises a typed error."""

from __future__ import annotations

import json
import logging
from contextlib import closing

import pytest
from hypothesis import strategies as st

from tests.chaos.fuzz.canned_server import CannedServer, http_response
from tests.chaos.fuzz.fuzzing import JSON, damaged_json, edge_cases, fuzz
from tests.chaos.fuzz.objects import EVENT, POD, TRAINJOB
from tests.chaos.fuzz.objects import RUN_KEY as KEY_TEXT
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection, list_warning_lines
from trainjob.client.api_errors import error_from_status
from trainjob.client.installed_trainer import InstalledTrainer
from trainjob.client.watch_stream import parse_event
from trainjob.errors import ClusterError, TrainJobError
from trainjob.lifecycle import JobReference, RunKey, cancel, submit
from trainjob.lifecycle.adoption import adopt
from trainjob.lifecycle.plan import plan_submission
from trainjob.manifest import labels
from trainjob.status import derive_verdict

CODES = st.sampled_from([100, 200, 201, 204, 301, 302, 400, 401, 403, 404, 409, 410, 418, 422, 429, 500, 503, 504, 599])
STATUS = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "reason": "Forbidden",
    "message": "no",
    "code": 403,
}
HTML = b"<!doctype html><title>Log in</title><form action=/login>"
BODIES = (
    (damaged_json(STATUS) | JSON | edge_cases).map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=60)
    | st.sampled_from([HTML, b"", b"[" * 100_000, b'{"a":' * 5000, b"\xff\xfe", b"NaN"])
)
RETRY = st.sampled_from(["1", "", "²", "-1", "1e9", "9" * 400, "Wed, 21 Oct 2026 07:28:00 GMT", "inf", "\x00"])


@fuzz(
    "error responses: error_from_status",
    500,
    code=CODES,
    body=BODIES.map(lambda body: body.decode(errors="replace")),
    retry=RETRY,
)
def test_each_error_response_becomes_a_typed_error(code, body, retry):
    error = error_from_status(code, body, {"Retry-After": retry}, server="https://s", doing="list pods")
    assert isinstance(error, ClusterError)
    assert str(error)
    wait = getattr(error, "retry_after", None)
    assert wait is None or wait >= 0
    return type(error).__name__


@pytest.fixture(scope="module", autouse=True)
def cluster_connection():
    """Open a cluster whose server sends the response that the test sets."""
    logger = logging.getLogger("urllib3.connection")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # drop its warnings about headers that it can't parse
    with CannedServer() as server, closing(Cluster(Connection(server=server.url), retry_seconds=0.0)) as cluster:
        SERVERS.append((server, cluster))
        yield
        SERVERS.clear()
    logger.setLevel(level)


SERVERS: list = []
LIST = {
    "kind": "TrainJobList",
    "metadata": {"resourceVersion": "5", "continue": ""},
    "items": [TRAINJOB, {**TRAINJOB, "metadata": {**TRAINJOB["metadata"], "uid": "u2"}}],
}
PODS = {"kind": "PodList", "metadata": {"resourceVersion": "5"}, "items": [POD]}
EVENTS = {"kind": "EventList", "metadata": {"resourceVersion": "5"}, "items": [EVENT]}
# Bodies of a response 200 without fields that every API object has. A proxy, or a server that is shutting down, sends
# them.
INCOMPLETE = [None, [], {}, {"metadata": None}, {"metadata": {}}]
INCOMPLETE += [
    {**TRAINJOB, "metadata": {name: value for name, value in TRAINJOB["metadata"].items() if name != missing}}
    for missing in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
]
INCOMPLETE += [{"metadata": {"resourceVersion": "5"}, "items": [item]} for item in INCOMPLETE]
RESPONSES = (
    damaged_json(LIST) | damaged_json(PODS) | damaged_json(EVENTS) | damaged_json(TRAINJOB) | damaged_json(STATUS)
).map(lambda value: json.dumps(value).encode()) | BODIES
RESPONSES |= st.sampled_from([b"", *(json.dumps(value).encode() for value in INCOMPLETE)])
JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["true"]))
KEY = RunKey(**json.loads(KEY_TEXT))
METADATA = {"labels": {}, "annotations": {labels.RUN_KEY: KEY_TEXT, labels.SPEC_HASH: "x"}}
REFERENCE = JobReference(TRAINJOB["metadata"]["name"], "team", TRAINJOB["metadata"]["uid"])
REQUESTS = {
    "list": lambda cluster: [derive_verdict(job).phase for job in cluster.list_trainjobs("team")],
    "plan": lambda cluster: plan_submission(cluster.list_trainjobs("team"), "x").attempt,
    "get": lambda cluster: derive_verdict(cluster.get_trainjob("tune", "team")).phase,
    "create": lambda cluster: cluster.create_trainjob({"metadata": {"namespace": "team"}}),
    "delete": lambda cluster: cluster.delete_trainjob("tune", "team", "u"),
    "pods": lambda cluster: cluster.list_pods("tune", "team"),
    "warnings": lambda cluster: list_warning_lines(cluster, "team", "tune", []),
    "fields": lambda cluster: cluster.trainjob_spec_fields(fresh=True),
    "claim": lambda cluster: cluster.get_claim("c", "team"),
    "version": lambda cluster: cluster.open_connection(),
    "submit": lambda cluster: submit(cluster, JOB, KEY, namespace="team", timeout=0.0),
    "adopt": lambda cluster: adopt(cluster, TRAINJOB, METADATA, {}),
    "suspend": lambda cluster: cancel(cluster, REFERENCE, "suspend").text,
    "cancel": lambda cluster: cancel(cluster, REFERENCE),
}


def send_request(request, response):
    """Send a request that gets this response; return the class of the error, or `a result`."""
    server, cluster = SERVERS[0]
    server.response = response
    try:
        REQUESTS[request](cluster)
    except TrainJobError as error:
        assert str(error)
        return type(error).__name__
    return "a result"


@fuzz(
    "HTTP responses to every request",
    400,
    request=st.sampled_from(sorted(REQUESTS)),
    status=CODES.map(lambda code: f"{code} x") | st.just("200 OK") | st.just("200 OK"),
    body=RESPONSES,
    header=st.sampled_from(["X: y", "Content-Encoding: gzip", "Location: /x", "Content-Type: text/html"])
    | RETRY.map("Retry-After: {}".format),
)
def test_each_http_response_is_handled(request, status, body, header):
    return send_request(request, http_response(body, status=status, headers=(header,)))


@fuzz(
    "bytes that are not HTTP",
    150,
    request=st.sampled_from(sorted(REQUESTS)),
    raw=st.binary(max_size=80)
    | st.sampled_from(
        [
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/9.9 abc\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n{}",
            b"SSH-2.0-x\r\n",
        ]
    ),
)
def test_bytes_that_are_not_http_are_handled(request, raw):
    return send_request(request, raw)


DOCUMENT = {
    "components": {
        "schemas": {
            "TrainJob": {
                "x-kubernetes-group-version-kind": [{"group": "trainer.kubeflow.org", "kind": "TrainJob"}],
                "properties": {"spec": {"properties": {"runtimeRef": {}, "runtimePatches": {}}}},
            },
            "Other": {"type": "object"},
        }
    }
}


@fuzz(
    "OpenAPI documents: InstalledTrainer",
    300,
    document=damaged_json(DOCUMENT) | st.dictionaries(st.text(max_size=3), JSON),
)
def test_each_openapi_document_is_read(document):
    if not isinstance(document, dict):
        return "no object"  # the HTTP client returns only objects
    fields = InstalledTrainer(lambda *_, **__: document, "https://s").spec_fields()
    assert isinstance(fields, frozenset)
    return "fields" if fields else "no fields"


WATCH_EVENTS = [{"type": kind, "object": TRAINJOB} for kind in ("ADDED", "MODIFIED", "DELETED")]
WATCH_EVENTS += [
    {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
    {"type": "ERROR", "object": STATUS},
]


@fuzz(
    "lines of a watch: parse_event",
    400,
    line=st.one_of(*map(damaged_json, WATCH_EVENTS)).map(lambda value: json.dumps(value).encode()) | BODIES,
)
def test_each_watch_line_is_an_event_or_an_error(line):
    try:
        event = parse_event(line, server="https://s", doing="watch trainjobs")
    except ClusterError as error:
        assert str(error)
        return type(error).__name__
    assert event.resource_version
    if event.object is None:
        return "a bookmark"
    assert derive_verdict(event.object).phase
    assert isinstance(event.object["metadata"], dict)
    return "an event"
