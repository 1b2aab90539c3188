"""Tests of a launcher that gets SIGTERM: it deletes its TrainJob first.

The launcher is a real process that sends real requests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.polling import wait_until
from trainjob.client import Connection
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
tune = JobReference("tune-1", "ml", "uid-1", adopted=options.pop("adopted", False))
job = {{"metadata": {{"name": "tune-1", "namespace": "ml"}}}}
cluster = Cluster(Connection(server=sys.argv[1]))
with Terminator(Connection(server=sys.argv[1]), **options) as terminator:
    {before}
    terminator.guard(tune)
    {after}
    print_line("ready")
    while True:
        print_line("loss")
        time.sleep(0.01)
"""
CREATE = "terminator.about_to_create('tune-1', 'ml'); print_line('ready'); cluster.create_trainjob(job)"
DELETED = b'{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}'
METADATA = {
    "name": "tune-1",
    "namespace": "ml",
    "uid": "uid-1",
    "resourceVersion": "1",
    "creationTimestamp": "2026-01-01T00:00:00Z",
}
SIGNAL = "os.kill(os.getpid(), signal.SIGTERM)"


@dataclass
class RecordingApiServer:
    """Answers every request after `latency` seconds, keeps connections open, and remembers who asked what when.

    Attributes:
        latency: seconds from a request to its answer.
        creation: seconds from a request to create to the TrainJob's existence; until then, it can't be deleted.
        answer: what a GET of the TrainJob gets.
        version: what a GET of the server's version gets.
    """

    latency: float = 0.0
    creation_seconds: float | None = None
    response: bytes = b"{}"
    version_response: bytes = b"{}"
    requests: list[tuple[str, str, dict, int, float]] = field(default_factory=list)
    created: threading.Event = field(default_factory=threading.Event)
    answered_requests: set[tuple[str, int]] = field(default_factory=set)

    def __enter__(self):
        told = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                at = time.monotonic()
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                told.requests.append((self.command, self.path, body, self.client_address[1], at))
                if self.command == "POST":
                    self.create()
                found = self.command != "DELETE" or told.creation_seconds is None or told.created.is_set()
                time.sleep(told.latency)
                content = {JOB: told.response, "/version": told.version_response}.get(self.path, b"{}")
                content = DELETED if self.command == "DELETE" else content
                self.send_response(200 if found else 404)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                told.answered_requests.add((self.path, self.client_address[1]))

            def create(self):
                time.sleep(told.creation_seconds)
                told.created.set()
                time.sleep(60)  # the answer is never seen

            do_GET = do_POST = do_DELETE = answer  # noqa: N815 - http.server's names

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
    """Start a launcher that guards the TrainJob `tune-1` and prints all the time."""
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
    process.stdout.close()  # its reader dies by the same signal: KFP's launcher
    try:
        code = process.wait(60)
        return code, process.stderr.read()
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def open_ports(api, connections=3):
    """Return the ports of the connections that wait for a signal."""
    ports = {port for path, port in api.answered.copy() if path == "/version"}
    return ports if len(ports) >= connections else None


@pytest.mark.parametrize("latency", [0.0, 0.4])
def test_the_first_thing_is_to_delete_this_very_job_on_an_open_connection(latency):
    with RecordingApiServer(latency) as api:
        process = start_launcher(api.url)
        ports = wait_until(lambda: open_ports(api))
        code, said = terminate(process)
        assert code == 143
        for _, path, body, _, _ in api.deletions:  # several if the first answer takes half a second
            assert path == JOB
            assert body == {"propagationPolicy": "Background", "preconditions": {"uid": "uid-1"}}
        assert api.deletions[0][3] in ports
        assert "SIGTERM: TrainJob ml/tune-1 was deleted" in said


def test_a_page_in_place_of_an_answer_is_no_end_of_readiness(api):
    api.version = b"<html>a proxy's own</html>"
    process = start_launcher(api.url)
    wait_until(lambda: open_ports(api))
    code, said = terminate(process)
    assert code == 143
    assert "SIGTERM: TrainJob ml/tune-1 was deleted" in said


def test_an_interrupt_does_the_same(api):
    code, _ = terminate(start_launcher(api.url), signal.SIGINT)
    assert code == 130
    assert {path for _, path, *_ in api.deletions} == {JOB}


def test_a_signal_before_anything_is_sent_creates_nothing(api):
    code, said = terminate(start_launcher(api.url, before=f"{SIGNAL}; {CREATE}", ready=False), None)
    assert code == 143
    assert not [request for request in api.requests if request[0] in ("POST", "DELETE")]
    assert "SIGTERM: nothing was created" in said


def test_a_signal_before_an_adoption_deletes_what_is_adopted(api):
    api.answer = running_trainjob()
    code, _ = terminate(start_launcher(api.url, before=SIGNAL, ready=False, adopted="True"), None)
    assert code == 143
    assert {path for _, path, *_ in api.deletions} == {JOB}


@pytest.mark.parametrize("creation", [0.0, 0.2, 1.5])
def test_what_is_being_created_is_deleted_by_its_name_as_soon_as_it_is_there(creation):
    with RecordingApiServer(creation_seconds=creation) as api:
        process = start_launcher(api.url, before=CREATE)
        wait_until(
            lambda: [request for request in api.requests if request[:2] == ("POST", f"{JOBS}?fieldValidation=Strict")]
        )
        code, said = terminate(process)
        assert code == 143
        assert "SIGTERM: TrainJob ml/tune-1 was deleted" in said
        assert api.created.is_set()
        assert {request[2].get("preconditions", "none") for request in api.deletions} == {"none"}


def test_a_signal_between_the_announcement_and_the_request_does_not_let_it_go(api, tmp_path):
    """Whoever is interrupted there goes on a second later: no emissary waits so long."""
    api.creation = 0.0
    go = tmp_path / "go"
    os.mkfifo(go)
    interrupted = f"terminator.about_to_create('tune-1', 'ml'); open({str(go)!r}).close(); {SIGNAL}"
    process = start_launcher(api.url, before=f"{interrupted}; print_line('on'); {CREATE}", ready=False)
    wait_until(lambda: open_ports(api))
    began = time.monotonic()
    go.open("w").close()
    code, said = terminate(process, None)
    assert code == 143
    wait_until(lambda: api.deletions)
    assert not [request for request in api.requests if request[0] == "POST"]
    assert "nothing was created" in said
    assert time.monotonic() - began >= 1.0


def test_the_job_is_kept_when_told_so(api):
    code, said = terminate(start_launcher(api.url, after="terminator.keep_when(lambda: True)"))
    assert code == 143
    assert not api.deletions
    assert "was left alone" in said


def trainjob_with_condition(kind):
    conditions = [{"type": kind, "status": "True", "reason": "x", "message": "x"}] if kind else []
    return json.dumps({"metadata": METADATA, "status": {"conditions": conditions}}).encode()


def running_trainjob():
    return trainjob_with_condition("")


def test_an_adopted_job_that_may_have_ended_is_looked_at_first(api):
    api.answer = trainjob_with_condition("Complete")
    code, said = terminate(start_launcher(api.url, adopted="True"))
    assert code == 143
    assert not api.deletions
    assert "was left alone, as it has ended" in said


def test_an_adopted_job_that_works_is_deleted_at_once(api):
    process = start_launcher(api.url, adopted="True", after="terminator.still_works()")
    code, _ = terminate(process)
    assert code == 143
    assert [request[0] for request in api.requests if request[1] == JOB] == ["DELETE"]


def test_a_job_that_has_ended_is_left_as_it_is(api):
    code, _ = terminate(start_launcher(api.url, after="terminator.stand_down()"))
    assert code == 143
    assert not api.deletions


def test_a_cluster_that_is_gone_does_not_hold_the_process(refusing_url):
    code, said = terminate(start_launcher(refusing_url))
    assert code == 143
    assert "could not be deleted" in said


def test_the_connection_is_used_now_and_then_so_that_nobody_closes_it(api):
    process = start_launcher(api.url, keep_warm_seconds="0.02")
    wait_until(lambda: open_ports(api) and len(api.requests) > 10)
    terminate(process)
    assert len({request[3] for request in api.requests}) == 3


def test_afterwards_signals_mean_what_they_meant_before(api):
    former = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Terminator(Connection(server=api.url)):
        assert signal.getsignal(signal.SIGTERM) != former[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == former
