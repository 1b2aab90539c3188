"""Tests of a launcher that gets SIGTERM: it deletes its TrainJob first.

The launcher is a real process that sends real requests.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.polling import wait_until
from tests.support.refused_threads import RefusedStarts
from trainjob.client import Connection
from trainjob.errors import OutOfThreads
from trainjob.lifecycle import JobReference
from trainjob_kfp.deletion import DeletionRequest, DeletionThreads
from trainjob_kfp.termination import Terminator

JOB = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainjobs/tune-1"
JOBS = JOB.rpartition("/")[0]
LAUNCHER = """
import os, signal, sys, time
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import JobReference
from trainjob_kfp.standard_output import print_line
from trainjob_kfp.termination import Terminator

options = eval(sys.argv[2])
tune = JobReference("tune-1", "ml", "uid-1")
known = {{"metadata": {{"name": "tune-1", "namespace": "ml", "uid": "uid-1", "resourceVersion": "7"}}}}
known_2 = {{"metadata": {{**known["metadata"], "name": "tune-2", "uid": "uid-2"}}}}
find_known = (lambda: known) if options.pop("known", True) else (lambda: None)
job = {{"metadata": {{"name": "tune-1", "namespace": "ml"}}}}
cluster = Cluster(Connection(server=sys.argv[1]))
with Terminator(Connection(server=sys.argv[1]), **options) as terminator:
    {before}
    terminator.set_reference(tune, find_known)
    {after}
    print_line("ready")
    while True:
        print_line("loss")
        time.sleep(0.01)
"""
CREATE = "terminator.note_creation('tune-1', 'ml'); print_line('ready'); cluster.create_trainjob(job)"
DELETED = b'{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}'
METADATA = {
    "name": "tune-1",
    "namespace": "ml",
    "uid": "uid-1",
    "resourceVersion": "1",
    "creationTimestamp": "2026-01-01T00:00:00Z",
}
SIGNAL = "os.kill(os.getpid(), signal.SIGTERM)"
PAUSE = """
    print_line('ready')
    terminator.begin_pause()
    terminator.pause(600)
"""


@dataclass
class RecordingApiServer:
    """API server that responds after `latency` seconds and records all requests.

    It keeps connections open.

    Attributes:
        latency: seconds from a request to its response.
        creation_seconds: seconds from a request to create the TrainJob to its existence. It cannot be deleted before.
        response: body of the response to a GET of the TrainJob.
        version_response: body of the response to a GET of the server's version.
    """

    latency: float = 0.0
    creation_seconds: float | None = None
    response: bytes = b"{}"
    version_response: bytes = b"{}"
    requests: list[tuple[str, str, dict, int, float]] = field(default_factory=list)
    created: threading.Event = field(default_factory=threading.Event)
    answered_requests: set[tuple[str, int]] = field(default_factory=set)

    def __enter__(self):
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def respond(self):
                at = time.monotonic()
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                recorder.requests.append((self.command, self.path, body, self.client_address[1], at))
                if self.command == "POST":
                    self.create()
                found = self.command != "DELETE" or recorder.creation_seconds is None or recorder.created.is_set()
                time.sleep(recorder.latency)
                content = {JOB: recorder.response, "/version": recorder.version_response}.get(self.path, b"{}")
                content = DELETED if self.command == "DELETE" else content
                self.send_response(200 if found else 404)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                recorder.answered_requests.add((self.path, self.client_address[1]))

            def create(self):
                time.sleep(recorder.creation_seconds)
                recorder.created.set()
                time.sleep(60)  # the client never gets the response

            do_GET = do_POST = do_DELETE = respond  # noqa: N815 - http.server's names

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def deletions(self):
        return [request for request in self.requests if request[0] == "DELETE"]


@pytest.fixture
def api():
    with RecordingApiServer() as server:
        yield server


def start_launcher(url, *, before="", after="", ready=True, **options):
    """Start a launcher for the TrainJob `tune-1` that prints without end."""
    code = LAUNCHER.format(before=before or "pass", after=after or "pass")
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            code,
            url,
            f"dict({', '.join(f'{name}={value}' for name, value in options.items())})",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if ready:
        assert process.stdout.readline() == "ready\n"
    return process


def terminate(process, number=signal.SIGTERM):
    if number is not None:
        process.send_signal(number)
    process.stdout.close()  # KFP's launcher, which reads it, ends by the same signal
    try:
        code = process.wait(60)
        return code, process.stderr.read()
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def open_ports(api, connections=3):
    """Return the ports of the connections that wait for a signal."""
    ports = {port for path, port in api.answered_requests.copy() if path == "/version"}
    return ports if len(ports) >= connections else None


@pytest.mark.parametrize("latency", [0.0, 0.4])
def test_a_signal_first_deletes_the_trainjob_by_its_uid_on_an_open_connection(latency):
    with RecordingApiServer(latency) as api:
        process = start_launcher(api.url)
        ports = wait_until(lambda: open_ports(api))
        code, output = terminate(process)
        assert code == 143
        for _, path, body, _, _ in api.deletions:  # several if the first response takes half a second
            assert path == JOB
            preconditions = {"uid": "uid-1", "resourceVersion": "7"}
            assert body == {"propagationPolicy": "Background", "preconditions": preconditions}
        assert api.deletions[0][3] in ports
        assert "SIGTERM: TrainJob ml/tune-1 was deleted" in output


def test_a_response_of_a_proxy_does_not_stop_the_deletion_threads(api):
    api.version_response = b"<html>a proxy's own</html>"
    process = start_launcher(api.url)
    wait_until(lambda: open_ports(api))
    code, output = terminate(process)
    assert code == 143
    assert "SIGTERM: TrainJob ml/tune-1 was deleted" in output


def test_one_thread_is_enough_for_the_deletion(api):
    api.response = running_trainjob()
    results, reference = queue.SimpleQueue(), JobReference("tune-1", "ml", "uid-1")
    with RefusedStarts(lambda n: n > 1):
        threads = DeletionThreads(Connection(server=api.url), keepalive_seconds=30.0)
    threads.submit(DeletionRequest("tune-1", "ml", reference, results.put))
    assert results.get(timeout=60) == "was deleted"
    threads.close()


def test_without_a_thread_for_the_deletion_no_step_begins(api):
    with RefusedStarts(lambda _: True), pytest.raises(OutOfThreads), Terminator(Connection(server=api.url)):
        pytest.fail("a TrainJob would be created that no signal could delete")


def test_sigint_deletes_the_trainjob(api):
    code, _ = terminate(start_launcher(api.url), signal.SIGINT)
    assert code == 130
    assert {path for _, path, *_ in api.deletions} == {JOB}


def test_after_an_early_signal_no_trainjob_is_created(api):
    code, output = terminate(start_launcher(api.url, before=f"{SIGNAL}; {CREATE}", ready=False), None)
    assert code == 143
    assert not [request for request in api.requests if request[0] in ("POST", "DELETE")]
    assert "SIGTERM: no TrainJob was created" in output


def test_after_an_early_signal_an_adopted_trainjob_is_deleted(api):
    api.response = running_trainjob()
    code, _ = terminate(start_launcher(api.url, before=SIGNAL, ready=False), None)
    assert code == 143
    assert {path for _, path, *_ in api.deletions} == {JOB}


@pytest.mark.parametrize("creation_seconds", [0.0, 0.2, 1.5])
def test_a_signal_during_the_creation_deletes_the_trainjob_by_its_name(creation_seconds):
    with RecordingApiServer(creation_seconds=creation_seconds) as api:
        process = start_launcher(api.url, before=CREATE)
        wait_until(
            lambda: [request for request in api.requests if request[:2] == ("POST", f"{JOBS}?fieldValidation=Strict")]
        )
        code, output = terminate(process)
        assert code == 143
        assert "SIGTERM: TrainJob ml/tune-1 was deleted" in output
        assert api.created.is_set()
        assert {request[2].get("preconditions", "none") for request in api.deletions} == {"none"}


def test_after_a_signal_just_before_the_request_no_trainjob_is_created(api, tmp_path):
    """If the signal comes after `note_creation` but before the request, the request is never sent.

    The signal handler cannot know whether the request was sent. It sends deletions for a second before it returns.
    """
    api.creation_seconds = 0.0
    go = tmp_path / "go"
    os.mkfifo(go)
    interrupted = f"terminator.note_creation('tune-1', 'ml'); open({str(go)!r}).close(); {SIGNAL}"
    process = start_launcher(api.url, before=f"{interrupted}; print_line('continued'); {CREATE}", ready=False)
    wait_until(lambda: open_ports(api))
    started_at = time.monotonic()
    go.open("w").close()
    code, output = terminate(process, None)
    assert code == 143
    wait_until(lambda: api.deletions)
    assert not [request for request in api.requests if request[0] == "POST"]
    assert "no TrainJob was created" in output
    assert time.monotonic() - started_at >= 1.0


def test_the_keep_condition_retains_the_trainjob(api):
    code, output = terminate(start_launcher(api.url, after="terminator.set_keep_condition(lambda: True)"))
    assert code == 143
    assert not api.deletions
    assert "was retained" in output


def trainjob_with_condition(kind):
    conditions = [{"type": kind, "status": "True", "reason": "x", "message": "x"}] if kind else []
    return json.dumps({"metadata": METADATA, "status": {"conditions": conditions}}).encode()


def running_trainjob():
    return trainjob_with_condition("")


def test_a_trainjob_that_the_watch_has_not_reported_is_read_first(api):
    api.response = trainjob_with_condition("Complete")
    code, output = terminate(start_launcher(api.url, known="False"))
    assert code == 143
    assert not api.deletions
    assert "is Complete and was retained" in output


def test_a_known_trainjob_is_deleted_with_the_first_request(api):
    code, _ = terminate(start_launcher(api.url))
    assert code == 143
    [(method, _, body, *_)] = [request for request in api.requests if request[1] == JOB]
    assert (method, body["preconditions"]) == ("DELETE", {"uid": "uid-1", "resourceVersion": "7"})


def test_a_finished_trainjob_is_retained(api):
    code, _ = terminate(start_launcher(api.url, after="terminator.mark_finished()"))
    assert code == 143
    assert not api.deletions


AFTER_AN_INTERRUPTION = "terminator.mark_finished(); terminator.begin_submission(); "


def test_before_another_attempt_exists_a_signal_creates_none_and_retains_the_interrupted_trainjob(api):
    after = f"{AFTER_AN_INTERRUPTION}{SIGNAL}; {CREATE}"
    code, output = terminate(start_launcher(api.url, after=after, ready=False), None)
    assert code == 143
    assert not [request for request in api.requests if request[0] in ("POST", "DELETE")]
    assert "SIGTERM: no TrainJob was created" in output


def test_a_signal_before_the_next_attempt_ends_the_process_at_once(api):
    after = f"{AFTER_AN_INTERRUPTION}{PAUSE}    {CREATE}"
    code, output = terminate(start_launcher(api.url, after=after))
    assert code == 143
    assert not [request for request in api.requests if request[0] in ("POST", "DELETE")]
    assert "SIGTERM: no further TrainJob was created" in output


def test_a_signal_just_before_the_pause_ends_the_process_at_once(api):
    after = f"terminator.begin_submission(); {SIGNAL}{PAUSE}"
    code, output = terminate(start_launcher(api.url, after=after, ready=False), None)
    assert code == 143
    assert "SIGTERM: no further TrainJob was created" in output


def test_after_an_interruption_the_newest_trainjob_is_deleted(api):
    newest = 'terminator.set_reference(JobReference("tune-2", "ml", "uid-2"), lambda: known_2)'
    code, output = terminate(start_launcher(api.url, after=AFTER_AN_INTERRUPTION + newest))
    assert code == 143
    assert {path for _, path, *_ in api.deletions} == {f"{JOBS}/tune-2"}
    assert "SIGTERM: TrainJob ml/tune-2 was deleted" in output


def test_the_keep_condition_also_applies_to_the_next_attempt(api):
    keep, newest = "terminator.set_keep_condition(lambda: True)", "terminator.set_reference(tune, find_known)"
    after = f"{keep}; {AFTER_AN_INTERRUPTION}{newest}"
    code, output = terminate(start_launcher(api.url, after=after))
    assert code == 143
    assert not api.deletions
    assert "was retained" in output


def test_an_unreachable_cluster_does_not_keep_the_process_running(refusing_url):
    code, output = terminate(start_launcher(refusing_url))
    assert code == 143
    assert "could not be deleted" in output


def test_open_connections_are_used_regularly(api):
    process = start_launcher(api.url, keepalive_seconds="0.02")
    wait_until(lambda: open_ports(api) and len(api.requests) > 10)
    terminate(process)
    assert len({request[3] for request in api.requests}) == 3


def test_the_previous_signal_handlers_are_restored(api):
    former = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Terminator(Connection(server=api.url)):
        assert signal.getsignal(signal.SIGTERM) != former[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == former
