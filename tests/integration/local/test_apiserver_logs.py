"""Tests of pod logs over HTTP: the request for the log source, its response, and rejected requests."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
from kubernetes import client, watch
from kubernetes.client.exceptions import ApiException

from tests.integration.local.served_registry import ServedRegistry, pod, serve_registry
from trainjob_local.apiserver import LogRequest, StatusError

LOG = "/api/v1/namespaces/default/pods/p/log"


class FakeLogSource:
    """A log source that returns the output, or raises the error, of the test."""

    def __init__(self) -> None:
        self.requests: queue.Queue[LogRequest] = queue.Queue()
        self.output: queue.Queue[bytes | None] = queue.Queue()
        self.error: Exception | None = None
        self.delay = 0.0  # seconds
        self.ended = threading.Event()

    def __call__(self, request: LogRequest) -> Iterator[bytes]:
        self.requests.put(request)
        time.sleep(self.delay)
        if self.error:
            raise self.error
        return self.pieces(request)

    def pieces(self, request: LogRequest) -> Iterator[bytes]:
        try:
            while not request.cancelled.is_set():
                try:
                    chunk = self.output.get(timeout=0.05)
                except queue.Empty:
                    continue
                if chunk is None:
                    return
                yield chunk
        finally:
            self.ended.set()


@pytest.fixture
def log_source() -> FakeLogSource:
    return FakeLogSource()


@pytest.fixture
def served(log_source: FakeLogSource) -> Iterator[ServedRegistry]:
    with serve_registry(log_source=log_source) as opened:
        opened.registry.create("pods", pod("p"), "default")
        opened.registry.bind("p", "n", "default")
        yield opened


def test_a_log_is_returned_completely(served: ServedRegistry, log_source: FakeLogSource) -> None:
    for chunk in (b"one\n", b"", b"two\n", None):
        log_source.output.put(chunk)
    with served.open_request("GET", LOG) as response:
        assert response.headers["content-type"].startswith("text/plain")
        assert response.read() == b"one\ntwo\n"


def test_all_query_parameters_reach_the_source(served: ServedRegistry, log_source: FakeLogSource) -> None:
    log_source.output.put(None)
    query = "container=c&follow=true&previous=true&tailLines=3&limitBytes=9&timestamps=true"
    served.request("GET", f"{LOG}?{query}&sinceTime=2026-01-31T12:00:00.123456789%2B01:00")
    request = log_source.requests.get_nowait()
    assert (request.namespace, request.pod, request.container) == ("default", "p", "c")
    assert request.uid == served.registry.get("pods", "p", "default")["metadata"]["uid"]
    assert (request.follow, request.previous, request.timestamps, request.tail_lines, request.limit_bytes) == (
        True,
        True,
        True,
        3,
        9,
    )
    assert request.since == datetime(2026, 1, 31, 11, 0, 0, 123456, tzinfo=timezone.utc)
    log_source.output.put(None)
    before = datetime.now(timezone.utc)
    served.request("GET", f"{LOG}?sinceSeconds=60")
    request = log_source.requests.get_nowait()
    assert (request.container, request.follow, request.tail_lines) == ("c", False, None)
    assert request.since is not None
    assert before <= request.since + timedelta(seconds=60) <= datetime.now(timezone.utc)


def test_output_is_sent_while_it_is_written(served: ServedRegistry, log_source: FakeLogSource) -> None:
    log_source.output.put(b"first\n")
    with served.open_request("GET", f"{LOG}?follow=true") as response:
        assert response.readline() == b"first\n"
        log_source.output.put(b"40%\r")
        assert response.read(4) == b"40%\r"
        assert served.request("GET", "/version").code == 200  # the stream does not block the server
        log_source.output.put(None)
        assert response.read() == b""


def test_the_response_begins_before_the_first_output(served: ServedRegistry, log_source: FakeLogSource) -> None:
    with served.open_request("GET", f"{LOG}?follow=true") as response:
        assert response.status == 200
        log_source.output.put(b"late\n")
        assert response.readline() == b"late\n"


def test_the_source_is_cancelled_when_the_client_disconnects(served: ServedRegistry, log_source: FakeLogSource) -> None:
    with served.open_request("GET", f"{LOG}?follow=true"):
        request = log_source.requests.get(timeout=60)
    assert request.cancelled.wait(60)
    assert log_source.ended.wait(60)


def test_the_server_buffers_little_for_a_slow_client(served: ServedRegistry, log_source: FakeLogSource) -> None:
    for _ in range(400):
        log_source.output.put(b"x" * 65536)
    with served.open_request("GET", f"{LOG}?follow=true") as response:
        response.read(1)
        assert served.request("GET", "/version").code == 200
        assert log_source.output.qsize() > 100  # the rest waits at the source
        left = 400 * 65536 - 1
        log_source.output.put(None)
        assert len(response.read()) == left


@pytest.mark.parametrize("takes", [0.0, 1.0])
def test_the_error_of_the_source_is_sent(served: ServedRegistry, log_source: FakeLogSource, takes: float) -> None:
    """The source's error is the response even if the source needs a second to raise it."""
    text = 'container "c" in pod "p" is waiting to start: ContainerCreating'
    log_source.error, log_source.delay = StatusError(400, "BadRequest", text), takes
    response = served.request("GET", LOG)
    assert (response.code, response.message) == (400, text)


@pytest.mark.filterwarnings("default::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_unexpected_error_of_the_source_is_an_internal_error(
    served: ServedRegistry, log_source: FakeLogSource
) -> None:
    log_source.error = ValueError("broken")
    response = served.request("GET", LOG)
    assert (response.code, response.message) == (500, "Internal error occurred: broken")


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        (
            "sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z",
            422,
            "at most one of `sinceTime` or `sinceSeconds` may be specified",
        ),
        ("sinceTime=x", 400, 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ("tailLines=x", 400, 'strconv.ParseInt: parsing "x": invalid syntax'),
    ],
)
def test_a_query_that_is_not_valid_is_rejected(served: ServedRegistry, query: str, code: int, text: str) -> None:
    response = served.request("GET", f"{LOG}?{query}")
    assert response.code == code
    assert text in response.message


def test_the_kubernetes_client_reads_logs_and_errors(served: ServedRegistry, log_source: FakeLogSource) -> None:
    api = client.CoreV1Api(served.create_client())
    for chunk in (b"one\n", b"two\n", None):
        log_source.output.put(chunk)
    assert list(watch.Watch().stream(api.read_namespaced_pod_log, "p", "default")) == ["one", "two"]
    log_source.error = StatusError(400, "BadRequest", 'previous terminated container "c" in pod "p" not found')
    with pytest.raises(ApiException) as raised:
        api.read_namespaced_pod_log("p", "default", previous=True)
    assert raised.value.status == 400


def test_a_log_without_a_kubelet_is_an_error_only_for_a_scheduled_pod() -> None:
    with serve_registry() as served:
        served.registry.create("pods", pod("p"), "default")
        assert served.request("GET", LOG).code == 204
        served.registry.bind("p", "n", "default")
        assert served.request("GET", LOG).code == 500
