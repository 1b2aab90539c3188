"""A launcher that is told to end deletes its TrainJob first: over a real wire, in a real process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from trainjob.cluster import Connection
from trainjob_kfp.termination import Terminator

JOB = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/ml/trainjobs/tune-1"
LAUNCHER = """
import os, signal, sys, time
from trainjob.cluster import Connection
from trainjob.run import JobReference
from trainjob_kfp.narration import print_line
from trainjob_kfp.termination import Terminator

options, tune = eval(sys.argv[2]), JobReference("tune-1", "ml", "uid-1")
with Terminator(Connection(server=sys.argv[1]), **options) as terminator:
    {before}
    terminator.guard(tune)
    {after}
    print_line("ready")
    while True:
        print_line("loss")
        time.sleep(0.01)
"""


@dataclass
class ApiServer:
    """Answers every request after `latency` seconds, keeps connections open, and remembers who asked what when."""

    latency: float = 0.0
    requests: list[tuple[str, str, dict, int, float]] = field(default_factory=list)

    def __enter__(self):
        told = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                at = time.monotonic()
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                told.requests.append((self.command, self.path, body, self.client_address[1], at))
                time.sleep(told.latency)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_DELETE = answer  # noqa: N815 - http.server's names

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
    with ApiServer() as server:
        yield server


def start(api, *, before="", after="", ready=True, **options):
    """A launcher that guards the TrainJob `tune-1` and prints all the time."""
    code = LAUNCHER.format(before=before or "pass", after=after or "pass")
    process = subprocess.Popen(
        [sys.executable, "-c", code, api.url, repr(options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if ready:
        assert process.stdout.readline() == "ready\n"
    return process


def end(process, number=signal.SIGTERM):
    if number is not None:
        process.send_signal(number)
    process.stdout.close()  # its reader dies by the same signal: KFP's launcher
    try:
        code = process.wait(10)
        return code, process.stderr.read()
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


@pytest.mark.parametrize("latency", [0.0, 0.4])
def test_the_first_thing_is_to_delete_this_very_job_on_an_open_connection(latency):
    with ApiServer(latency) as api:
        process = start(api)
        signalled = time.monotonic()
        code, said = end(process)
        [(_, path, body, port, at)] = api.deletions
        assert code == 143
        assert path == JOB
        assert body == {"propagationPolicy": "Background", "preconditions": {"uid": "uid-1"}}
        assert port in [request[3] for request in api.requests if request[0] == "GET"]
        assert at - signalled < 0.5  # there may be no more than 0.95 s
        assert "SIGTERM: TrainJob ml/tune-1 was deleted" in said


def test_an_interrupt_does_the_same(api):
    code, _ = end(start(api), signal.SIGINT)
    assert code == 130
    assert len(api.deletions) == 1


def test_a_signal_before_the_answer_to_the_creation_deletes_what_was_created(api):
    process = start(api, before="os.kill(os.getpid(), signal.SIGTERM)", ready=False)
    code, _ = end(process, None)
    assert code == 143
    assert len(api.deletions) == 1


def test_the_job_is_kept_when_told_so(api):
    code, said = end(start(api, keep=True))
    assert code == 143
    assert not api.deletions
    assert "was left alone" in said


def test_a_job_that_has_ended_is_left_as_it_is(api):
    code, _ = end(start(api, after="terminator.stand_down()"))
    assert code == 143
    assert not api.deletions


def test_a_cluster_that_is_gone_does_not_hold_the_process():
    with ApiServer() as api:
        pass
    code, said = end(start(api))
    assert code == 143
    assert "could not be deleted" in said


def test_the_connection_is_used_now_and_then_so_that_nobody_closes_it(api):
    process = start(api, keep_warm_seconds=0.02)
    deadline = time.monotonic() + 5
    while len(api.requests) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    end(process)
    assert len({request[3] for request in api.requests if request[0] == "GET"}) == 1
    assert len(api.requests) >= 5


def test_afterwards_signals_mean_what_they_meant_before(api):
    former = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with Terminator(Connection(server=api.url)):
        assert signal.getsignal(signal.SIGTERM) != former[0]
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == former
