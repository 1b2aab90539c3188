"""Fetches while the store, its network or the volume fails."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import threading
import time
import uuid
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.integration.programs.fetch.conftest import RecordingHubHandler
from tests.integration.programs.fetch.fetch_results import is_complete, read_contents, read_receipt
from tests.support.azure_server import AzureServer
from tests.support.faulty_server import Fault, with_faults
from tests.support.file_server import FileServer, ServedFile
from tests.support.gcs_server import GcsServer
from tests.support.object_server import StoredObject
from tests.support.polling import wait_until
from tests.support.s3_server import S3Server
from trainjob.errors import FetchError
from trainjob.programs.fetch import Fetch, retries
from trainjob.programs.fetch import fetch as fetch_files
from trainjob.programs.fetch.part_file import BLOCK_BYTES, PartFile
from trainjob.programs.fetch.retries import StatusError, is_transient, parse_retry_after
from trainjob_local.demo.hub import HubHandler, HubServer

MB = 1 << 20
CDN = "localhost"  # another host than 127.0.0.1
NAME = "model.safetensors"
FAULTS = {
    "reset in the middle": [Fault(sent=3 * MB, is_reset=True)],
    "closed in the middle": [Fault(sent=3 * MB)],
    "reset before a byte": [Fault(sent=1, is_reset=True)],
    "408": [Fault(408)],
    "429 with a time": [Fault(429, "1")],
    "500": [Fault(500)],
    "502 and 503": [Fault(502), Fault(503)],
    "504": [Fault(504)],
    "many with progress": [Fault(sent=MB // 2, is_reset=bool(number % 2)) for number in range(12)],
}


@pytest.fixture
def model(tmp_path):
    return tmp_path / "workspace" / "model"


# opendal itself repeats most requests to gs and az, after half a second or more.
@pytest.fixture(params=["hub", "s3", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gs", "az"))])
def store(request, tmp_path):
    """Return a function that starts a store with faults, and yields its address."""
    content = os.urandom(3 * BLOCK_BYTES)
    folder = tmp_path / "hub/models/demo/tiny"
    folder.mkdir(parents=True)

    @contextlib.contextmanager
    def start(faults):
        if request.param == "hub":
            (folder / NAME).write_bytes(content)
            with HubServer(tmp_path / "hub", handler=with_faults(HubHandler, NAME, faults)) as hub:
                yield "hf://demo/tiny", {"HF_ENDPOINT": hub.url}
            return
        server_class = {"s3": S3Server, "gs": GcsServer, "az": AzureServer}[request.param]
        faulty = type("Faulty", (server_class,), {"handler": with_faults(server_class.handler, NAME, faults)})
        with faulty(objects={f"models/tiny/{NAME}": StoredObject(content, {})}) as server:
            yield f"{server.scheme}://models/tiny", {"ENDPOINT": server.url, **server.environment}

    start.content = content
    return start


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_that_passes_costs_only_time(store, run_fetch, model, fault):
    faults = list(FAULTS[fault])
    with store(faults) as (uri, environment):
        assert read_receipt(run_fetch("model", uri, **environment))["fetched"] == 1
    assert not faults
    assert read_contents(model) == {NAME: store.content}


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES])
def test_files_of_any_size_arrive_whole(tmp_path, run_fetch, hub, model, size):
    content = os.urandom(size)
    (tmp_path / "hub/models/demo/tiny" / NAME).write_bytes(content)
    (tmp_path / "hub/models/demo/tiny/README.md").write_bytes(content)  # its digest is that of git
    read_receipt(run_fetch("model", "hf://demo/tiny", HF_ENDPOINT=hub.url))
    assert (model / NAME).read_bytes() == (model / "README.md").read_bytes() == content


class RedirectingHandler(RecordingHubHandler):
    """A hub that redirects to another host, with a signature for one request."""

    def do_GET(self):  # noqa: N802 - the library's name
        signature = parse_qs(urlsplit(self.path).query).get("signature")
        if "/resolve/" in self.path and not signature:
            assert self.headers["Authorization"] == "Bearer hf_right"
            self.send_response(302)
            self.send_header("Location", f"http://{CDN}:{self.server.server_port}{self.path}?signature={uuid.uuid4()}")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif signature and signature[0] in self.used:
            self.send_hub_error(HTTPStatus.FORBIDDEN, "", "Request has expired")
        else:
            self.used.update(signature or ())
            assert not signature or "Authorization" not in self.headers
            super().do_GET()


def test_an_address_that_has_expired_is_requested_again(hub, tmp_path, run_fetch, model):
    """The other host gets no token."""
    content = os.urandom(4 * BLOCK_BYTES)
    (tmp_path / "hub/models/demo/tiny" / NAME).write_bytes(content)
    handler = type("Handler", (RedirectingHandler,), {**vars(hub.handler_class), "used": set()})
    with HubServer(tmp_path / "hub", handler=handler) as server:
        environment = {"HF_ENDPOINT": server.url, "ACCESS_TOKEN": "hf_right"}
        read_receipt(run_fetch("model", "hf://demo/tiny", **environment))
    assert (model / NAME).read_bytes() == content
    assert len(handler.used) >= 4 + 3  # blocks and small files


@pytest.mark.parametrize(
    ("failure", "transient"),
    [
        (StatusError(403, "hub", "", 0, from_store=True), False),
        (StatusError(403, "cdn", "", 0, from_store=False), True),
        (
            StatusError(
                403, "s3", "<Code>AccessDenied</Code><Message>Request has expired</Message>", 0, from_store=True
            ),
            True,
        ),
        (StatusError(401, "cdn", "", 0, from_store=False), False),
        (StatusError(404, "cdn", "", 0, from_store=False), False),
        (StatusError(503, "s3", "", 0, from_store=True), True),
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (PermissionError(), False),
        (FetchError("changed"), False),
    ],
)
def test_which_failures_are_repeated(failure, transient):
    assert is_transient(failure) == transient


def test_the_time_that_a_server_names():
    assert parse_retry_after({"Retry-After": "7"}) == 7
    later = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 100))
    assert 90 < parse_retry_after({"Retry-After": later}) <= 100
    assert parse_retry_after({"Retry-After": "soon"}) == parse_retry_after({}) == 0


def test_failures_without_progress_are_counted(model, monkeypatch):
    monkeypatch.setattr(retries, "_FIRST_PAUSE", 0.001)
    content = os.urandom(2 * MB)
    uri = f"/data.bin#sha256={hashlib.sha256(content).hexdigest()}"
    lines = []
    with FileServer({"/data.bin": ServedFile(content, {"ETag": "x"})}) as server:
        server.hook = lambda path, position: setattr(server, "busy", 99)  # after the first, which reads the header only
        with pytest.raises(FetchError, match="can't be fetched: HTTP 503"):
            fetch_files(Fetch("dataset", model, f"{server.url}{uri}"), report=lines.append)
    assert sum("attempt" in line for line in lines) == retries.ATTEMPTS - 3


def test_a_volume_without_space_for_the_files_is_refused_at_once(tmp_path, model, monkeypatch):
    source = tmp_path / "source"
    source.mkdir()
    with (source / NAME).open("wb") as file:
        file.truncate(8 << 40)
    request = Fetch("model", model, "pvc://data/", source=source)
    with pytest.raises(FetchError, match=r"need 8\.8 TB more, but the volume of .* has .* left\n.*enlarge"):
        fetch_files(request, report=lambda line: None)
    assert not (model / ".trainjob-fetch/parts").exists()


def test_a_volume_that_becomes_full_is_reported(tmp_path, model):
    """A limit on the size of files gives the error of a quota, in a process of its own."""
    source = tmp_path / "source"
    source.mkdir()
    (source / NAME).write_bytes(os.urandom(3 * BLOCK_BYTES))
    write = PartFile.write

    def refuse(part, number, block):
        if number:
            raise OSError(122, "Disk quota exceeded")
        write(part, number, block)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PartFile, "write", refuse)
        with pytest.raises(FetchError, match=r"the volume of .* is full: .*Disk quota exceeded\n.*enlarge"):
            fetch_files(Fetch("model", model, "pvc://data/", source=source), report=lambda line: None)
    assert read_contents(model) == {}
    fetch_files(Fetch("model", model, "pvc://data/", source=source), report=lambda line: None)
    assert (model / NAME).read_bytes() == (source / NAME).read_bytes()


def test_a_refused_thread_ends_the_other_threads(tmp_path, model, monkeypatch):
    source = tmp_path / "source"
    source.mkdir()
    with (source / NAME).open("wb") as file:
        file.truncate(64 * BLOCK_BYTES)
    start, workers, before = threading.Thread.start, itertools.count(), threading.enumerate()
    write, written, has_failed = PartFile.write, [], threading.Event()

    def write_after_the_failure(part, offset, content):
        assert has_failed.wait(60)
        written.append(offset)
        write(part, offset, content)

    def refuse_the_third_worker(thread):
        if thread._target.__name__ == "_work" and next(workers) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(PartFile, "write", write_after_the_failure)
    monkeypatch.setattr(threading.Thread, "start", refuse_the_third_worker)
    with pytest.raises(FetchError, match="can't start new thread"):
        fetch_files(Fetch("model", model, "pvc://data/", source=source), report=lambda line: None)
    has_failed.set()
    wait_until(lambda: threading.enumerate() == before)
    assert len(written) <= 2
    assert read_contents(model) == {}


def test_two_fetches_into_one_folder_exclude_each_other(tmp_path, start_fetch, hub, model):
    content = os.urandom(2 * BLOCK_BYTES)
    (tmp_path / "hub/models/demo/tiny" / NAME).write_bytes(content)
    with open(tmp_path / "second.log", "w+") as log:  # noqa: PTH123
        started, requests = [], itertools.count()

        def start_second(line):
            """Start the second fetch while the first one fetches, and wait until it waits for it."""
            if NAME in line and "/resolve/" in line and not next(requests):  # two blocks arrive at once
                started.append(start_fetch("model", "hf://demo/tiny", HF_ENDPOINT=hub.url, stdout=log))
                wait_until(lambda: "waiting for its end" in (tmp_path / "second.log").read_text())

        hub.handler_class.hook = staticmethod(start_second)
        first = start_fetch("model", "hf://demo/tiny", HF_ENDPOINT=hub.url)
        out, _ = first.communicate(timeout=300)
        assert '"fetched": 4' in out
        started[0].communicate(timeout=300)
        assert started[0].returncode == 0
    second = (tmp_path / "second.log").read_text()
    assert "another fetch fills" in second
    assert "all files are in the folder already" in second
    assert (model / NAME).read_bytes() == content
    assert len(hub.handler_class.ranges) == 5  # three small files and two blocks


@pytest.mark.slow
def test_a_hundred_kills_at_random_times_leave_a_whole_model_or_none(tmp_path, start_fetch, run_fetch, hub, model):
    content = os.urandom(6 * BLOCK_BYTES)
    (tmp_path / "hub/models/demo/tiny" / NAME).write_bytes(content)
    times = random.Random(7)  # noqa: S311 - the same times in each run
    for _ in range(100):
        process = start_fetch("model", "hf://demo/tiny", HF_ENDPOINT=hub.url)
        try:
            process.wait(times.uniform(0.3, 1.5))
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        assert not is_complete(model) or (model / NAME).read_bytes() == content
        assert process.returncode in (0, -signal.SIGKILL)
        if is_complete(model):  # with its record: a process that is killed at its start would leave it as it is
            shutil.rmtree(model)
    read_receipt(run_fetch("model", "hf://demo/tiny", HF_ENDPOINT=hub.url))
    assert (model / NAME).read_bytes() == content
