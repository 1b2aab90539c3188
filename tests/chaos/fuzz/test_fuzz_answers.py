"""What a server answers: what was asked for, or an error of ours; whatever stands between us and the API server."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import strategies as st

from tests.chaos.fuzz.canned_server import canned_server, http
from tests.chaos.fuzz.fuzzing import JSON, NASTY, damaged, fuzz
from tests.chaos.fuzz.objects import EVENT, POD, TRAINJOB
from tests.chaos.fuzz.objects import KEY as KEY_TEXT
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.client import Cluster, Connection, warnings_about
from trainjob.client.api_errors import from_status
from trainjob.client.installed_trainer import InstalledTrainer
from trainjob.client.watch_stream import read_event
from trainjob.errors import ClusterError, TrainJobError
from trainjob.lifecycle import JobReference, RunKey, give_up, submit
from trainjob.lifecycle.adoption import adopt
from trainjob.lifecycle.cancellation import cancel_at_work
from trainjob.lifecycle.plan import plan
from trainjob.manifest import labels
from trainjob.status import judge

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
    (damaged(STATUS) | JSON | NASTY).map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=60)
    | st.sampled_from([HTML, b"", b"[" * 100_000, b'{"a":' * 5000, b"\xff\xfe", b"NaN"])
)
RETRY = st.sampled_from(["1", "", "²", "-1", "1e9", "9" * 400, "Wed, 21 Oct 2026 07:28:00 GMT", "inf", "\x00"])


@fuzz(
    "error answers: from_status",
    500,
    code=CODES,
    body=BODIES.map(lambda body: body.decode(errors="replace")),
    retry=RETRY,
)
def test_from_status(code, body, retry):
    error = from_status(code, body, {"Retry-After": retry}, server="https://s", doing="list pods")
    assert isinstance(error, ClusterError)
    assert str(error)
    wait = getattr(error, "retry_after", None)
    assert wait is None or wait >= 0
    return type(error).__name__


@pytest.fixture(scope="module")
def wire():
    """A cluster whose server answers what the test tells it to."""
    with canned_server() as server:
        cluster = Cluster(Connection(server=server.server), patience=0.0)
        SERVERS.append((server, cluster))
        yield
        SERVERS.clear()
        cluster.close()


SERVERS: list = []
LIST = {
    "kind": "TrainJobList",
    "metadata": {"resourceVersion": "5", "continue": ""},
    "items": [TRAINJOB, {**TRAINJOB, "metadata": {**TRAINJOB["metadata"], "uid": "u2"}}],
}
PODS = {"kind": "PodList", "metadata": {"resourceVersion": "5"}, "items": [POD]}
EVENTS = {"kind": "EventList", "metadata": {"resourceVersion": "5"}, "items": [EVENT]}
# Bodies of a 200 that lack what every API object has, as a proxy or a server that is shutting down sends them.
INCOMPLETE = [None, [], {}, {"metadata": None}, {"metadata": {}}]
INCOMPLETE += [
    {**TRAINJOB, "metadata": {name: value for name, value in TRAINJOB["metadata"].items() if name != missing}}
    for missing in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
]
INCOMPLETE += [{"metadata": {"resourceVersion": "5"}, "items": [one]} for one in INCOMPLETE]
ANSWERS = (damaged(LIST) | damaged(PODS) | damaged(EVENTS) | damaged(TRAINJOB) | damaged(STATUS)).map(
    lambda value: json.dumps(value).encode()
) | BODIES
ANSWERS |= st.sampled_from([b"", *(json.dumps(value).encode() for value in INCOMPLETE)])
QUESTIONS = {
    "list": lambda cluster: [judge(job).phase for job in cluster.list_trainjobs("team")],
    "plan": lambda cluster: plan(cluster.list_trainjobs("team"), "x").attempt,
    "get": lambda cluster: judge(cluster.get_trainjob("tune", "team")).phase,
    "create": lambda cluster: cluster.create_trainjob({"metadata": {"namespace": "team"}}),
    "delete": lambda cluster: cluster.delete_trainjob("tune", "team", "u"),
    "pods": lambda cluster: cluster.list_pods("tune", "team"),
    "warnings": lambda cluster: warnings_about(cluster, "team", "tune", []),
    "fields": lambda cluster: cluster.trainjob_spec_fields(fresh=True),
    "claim": lambda cluster: cluster.get_claim("c", "team"),
    "version": lambda cluster: cluster.touch(),
    "submit": lambda cluster: submit(cluster, JOB, KEY, namespace="team", patience=0.0),
    "adopt": lambda cluster: adopt(cluster, TRAINJOB, KEPT, {}),
    "suspend": lambda cluster: give_up(cluster, KNOWN, "suspend"),
    "cancel": lambda cluster: cancel_at_work(cluster, KNOWN),
}
JOB = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["true"]))
KEY, KEPT = RunKey(**json.loads(KEY_TEXT)), {"labels": {}, "annotations": {labels.RUN_KEY: KEY_TEXT}}
KNOWN = JobReference(TRAINJOB["metadata"]["name"], "team", TRAINJOB["metadata"]["uid"])


def asked(question, answer):
    """What came of a question that got this answer."""
    server, cluster = SERVERS[0]
    server.answer = answer
    try:
        QUESTIONS[question](cluster)
    except TrainJobError as error:
        assert str(error)
        return type(error).__name__
    return "an answer"


@fuzz(
    "answers over the wire, to every question",
    400,
    question=st.sampled_from(sorted(QUESTIONS)),
    status=CODES.map(lambda code: f"{code} x") | st.just("200 OK") | st.just("200 OK"),
    body=ANSWERS,
    header=st.sampled_from(["X: y", "Content-Encoding: gzip", "Location: /x", "Content-Type: text/html"])
    | RETRY.map("Retry-After: {}".format),
)
def check_wire(question, status, body, header):
    return asked(question, http(body, status=status, headers=(header,)))


@fuzz(
    "raw bytes in the place of HTTP",
    150,
    question=st.sampled_from(sorted(QUESTIONS)),
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
def check_raw(question, raw):
    return asked(question, raw)


@pytest.fixture
def quiet():
    """urllib3 warns of headers that it can't parse, which is its right."""
    logger = logging.getLogger("urllib3.connection")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def test_answers_over_the_wire(wire, quiet):
    check_wire()


def test_raw_bytes_over_the_wire(wire, quiet):
    check_raw()


test_answers_over_the_wire.fuzzed, test_raw_bytes_over_the_wire.fuzzed = check_wire.fuzzed, check_raw.fuzzed
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
    "OpenAPI documents: InstalledTrainer", 300, document=damaged(DOCUMENT) | st.dictionaries(st.text(max_size=3), JSON)
)
def test_openapi(document):
    if not isinstance(document, dict):
        return "no answer"  # the client returns only objects
    fields = InstalledTrainer(lambda *_, **__: document, "https://s").spec_fields()
    assert isinstance(fields, frozenset)
    return "fields" if fields else "no fields"


WATCHED = [{"type": kind, "object": TRAINJOB} for kind in ("ADDED", "MODIFIED", "DELETED")]
WATCHED += [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}, {"type": "ERROR", "object": STATUS}]


@fuzz(
    "lines of a watch: read_event",
    400,
    line=st.one_of(*map(damaged, WATCHED)).map(lambda value: json.dumps(value).encode()) | BODIES,
)
def test_watch_lines(line):
    try:
        event = read_event(line, server="https://s", doing="watch trainjobs")
    except ClusterError as error:
        assert str(error)
        return type(error).__name__
    assert event.version
    if event.found is None:
        return "a bookmark"
    assert judge(event.found).phase
    assert isinstance(event.found["metadata"], dict)
    return "an event"
