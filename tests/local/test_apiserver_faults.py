"""Faults that tests switch on, in the process and over HTTP."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator

import pytest
from apiserver_door import TRAINJOBS, Door, serving, trainjob
from kubernetes import client
from kubernetes.client.exceptions import ApiException

CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def door() -> Iterator[Door]:
    with serving() as opened:
        yield opened


def test_so_many_answers_for_what_fits(door: Door) -> None:
    door.server.faults.answer(429, 2, verb="list", resource="trainjobs", retry_after=3)
    for _ in range(2):
        answer = door.ask("GET", TRAINJOBS)
        assert (answer.code, answer.json["reason"], answer.headers["retry-after"]) == (429, "TooManyRequests", "3")
        assert answer.json["details"] == {"retryAfterSeconds": 3}
        assert door.ask("GET", CONFIGMAPS).code == 200
        assert door.ask("GET", f"{TRAINJOBS}/a").code == 404
    assert door.ask("GET", TRAINJOBS).code == 200


@pytest.mark.parametrize(
    ("code", "reason"), [(401, "Unauthorized"), (500, "InternalError"), (503, "ServiceUnavailable"), (410, "Expired")]
)
def test_errors_reach_the_client(door: Door, code: int, reason: str) -> None:
    door.server.faults.answer(code)
    with pytest.raises(ApiException) as raised:
        client.CoreV1Api(door.client()).list_namespaced_pod("default")
    assert raised.value.status == code
    assert f'"reason":"{reason}"' in raised.value.body
    assert door.ask("GET", CONFIGMAPS).code == 200


def test_an_answer_that_is_lost(door: Door) -> None:
    door.server.faults.answer(504, verb="create", resource="trainjobs", carried_out=True)
    assert door.ask("POST", TRAINJOBS, trainjob("a")).code == 504
    assert door.ask("POST", TRAINJOBS, trainjob("a")).code == 409


def test_subresources_have_names_of_their_own(door: Door) -> None:
    door.server.faults.answer(500, resource="pods/log")
    assert door.ask("GET", "/api/v1/namespaces/default/pods/p").code == 404
    assert door.ask("GET", "/api/v1/namespaces/default/pods/p/log").code == 500


def test_latency(door: Door) -> None:
    door.server.faults.latency = 0.3
    start = time.monotonic()
    door.ask("GET", CONFIGMAPS)
    assert time.monotonic() - start >= 0.3
    door.server.faults.latency = 3600.0
    door.server.faults.clear()
    assert door.ask("GET", CONFIGMAPS).code == 200


def test_the_next_watch_has_expired(door: Door) -> None:
    version = door.registry.store.version
    door.server.faults.expire_watches(1)
    path = f"{CONFIGMAPS}?watch=1&resourceVersion={version}&timeoutSeconds=1"
    (event,) = door.watch(path)
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert door.watch(path) == []


def test_over_http(door: Door) -> None:
    wanted = {"latency": 0.01, "answer": {"code": 503, "times": 2, "verb": "get"}, "expire_watches": 1}
    shown = door.ask("POST", "/faults", wanted).json
    assert shown["latency"] == 0.01
    assert (shown["answers"][0]["code"], shown["answers"][0]["times"], shown["expire_watches"]) == (503, 2, 1)
    assert door.ask("GET", f"{CONFIGMAPS}/a").code == 503
    assert door.ask("GET", "/faults").json["answers"][0]["times"] == 1
    assert door.ask("DELETE", "/faults").json == {"latency": 0.0, "answers": [], "expire_watches": 0}
    assert door.ask("GET", f"{CONFIGMAPS}/a").code == 404
    with door.open("GET", f"{CONFIGMAPS}?watch=1") as response:
        door.ask("POST", "/faults", {"drop_watches": True})
        with pytest.raises(http.client.IncompleteRead):
            response.read()


@pytest.mark.parametrize("wanted", [[], {"bogus": 1}, {"answer": {"status": 1}}, {"latency": "x"}, {"answer": 3}])
def test_what_cannot_be_read(door: Door, wanted: object) -> None:
    assert door.ask("POST", "/faults", wanted).code == 400
    assert door.ask("GET", "/faults").json == {"latency": 0.0, "answers": [], "expire_watches": 0}


def test_only_the_admin_may(door: Door) -> None:
    assert door.ask("POST", "/faults", {"latency": 1}, token="").code == 403
    assert door.ask("POST", "/faults", {"latency": 1}, token="wrong").code == 401
    assert door.server.faults.latency == 0.0
