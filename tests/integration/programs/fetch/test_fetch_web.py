"""Fetches of a file from a web server, by the program as a process."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import socket

import pytest

from tests.integration.programs.fetch.fetch_results import failure_message, is_complete, read_contents, read_receipt
from tests.support.file_server import FileServer, ServedFile
from tests.support.polling import wait_until
from trainjob.errors import FetchError
from trainjob.programs.fetch import Fetch, retries
from trainjob.programs.fetch import fetch as fetch_files
from trainjob.programs.fetch.part_file import BLOCK_BYTES

ROWS = b'{"question": "a"}\n' * 99
PATH = "/data/train.jsonl"
ETAG, DATE = {"ETag": '"one"'}, {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
# More than the buffers of a connection on loopback hold, so that the client has read a part of it when it is killed.
LARGE = 10 * BLOCK_BYTES
LAST, SENT = LARGE - BLOCK_BYTES, LARGE - BLOCK_BYTES // 2


def digest(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def server():
    with FileServer({PATH: ServedFile(ROWS, ETAG)}) as served:
        yield served


@pytest.fixture
def dataset(tmp_path):
    return tmp_path / "workspace" / "dataset"


@pytest.fixture
def origin(server, use_tls, authority):
    """Return the server's URL with TLS."""
    return use_tls(server.http_server, authority.issue_cert("127.0.0.1", "localhost"))


@pytest.fixture
def environment(authority_file):
    return {"SSL_CERT_FILE": authority_file, "NO_PROXY": "127.0.0.1,localhost"}


@pytest.fixture
def fetch(run_fetch, origin, environment):
    def run(path=PATH, **variables):
        return run_fetch("dataset", path if "://" in path else f"{origin}{path}", **environment, **variables)

    return run


@pytest.mark.parametrize("headers", [ETAG, DATE, {**ETAG, **DATE}], ids=["etag", "date", "both"])
def test_a_file_is_stored_under_its_name_and_fetched_once(fetch, server, dataset, headers):
    server.files[PATH] = ServedFile(ROWS, headers)
    first = read_receipt(fetch())
    assert read_contents(dataset) == {"train.jsonl": ROWS}
    assert (first["files"], first["bytes"], first["fetched"]) == (1, len(ROWS), 1)
    assert is_complete(dataset)
    assert read_receipt(fetch()) == {**first, "fetched": 0}
    server.files[PATH] = ServedFile(ROWS[::-1], dict.fromkeys(headers, '"another"'))
    assert read_receipt(fetch())["fetched"] == 1
    assert read_contents(dataset) == {"train.jsonl": ROWS[::-1]}


@pytest.mark.parametrize("data", [b"", b"x"])
def test_a_small_file_and_a_name_with_escapes(fetch, server, dataset, data):
    server.files["/a%20b.csv?version=2"] = ServedFile(data, ETAG)
    read_receipt(fetch("/a%20b.csv?version=2"))
    assert read_contents(dataset) == {"a b.csv": data}


def test_plain_http_with_a_digest(run_fetch, dataset):
    with FileServer({PATH: ServedFile(ROWS, {})}) as server:
        uri = f"{server.url}{PATH}#sha256={digest(ROWS)}"
        first = read_receipt(run_fetch("dataset", uri, NO_PROXY="127.0.0.1"))
        assert read_contents(dataset) == {"train.jsonl": ROWS}
        assert read_receipt(run_fetch("dataset", uri, NO_PROXY="127.0.0.1")) == {**first, "fetched": 0}


def test_another_digest_is_refused(fetch, dataset):
    message = failure_message(fetch(f"{PATH}#sha256={digest(b'')}"))
    assert "differs from the store's listing, or from the digest in the address" in message
    assert read_contents(dataset) == {}
    assert not is_complete(dataset)


@pytest.mark.parametrize("has_ranges", [True, False], ids=["ranges", "no-ranges"])
@pytest.mark.parametrize("changed", [False, True], ids=["same-file", "changed-file"])
def test_a_killed_download_is_continued_and_never_mixed(
    start_fetch, fetch, server, origin, environment, dataset, has_ranges, changed
):
    content, server.has_ranges = os.urandom(1 << 20) * (LARGE >> 20), has_ranges
    server.files[PATH] = ServedFile(content, ETAG)
    process = start_fetch("dataset", f"{origin}{PATH}", **environment)
    parts = dataset / ".trainjob-fetch/parts"

    def kill(path, position):
        """Kill the fetch before the last block, when all others are on disk."""
        if position == LAST and len(server.requests) > 1:  # the first request reads the header only
            wait_until(lambda: [path.read_bytes().count(1) for path in parts.glob("*.blocks")] == [LAST // BLOCK_BYTES])
            os.kill(process.pid, signal.SIGKILL)

    server.hook = kill
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert not (dataset / "train.jsonl").exists()
    server.hook = lambda *_: None
    server.requests.clear()
    if changed:
        content = content[::-1]
        server.files[PATH] = ServedFile(content, {"ETag": '"two"'})
    read_receipt(fetch())
    assert read_contents(dataset) == {"train.jsonl": content}
    first, *resumed = (wanted for _, wanted, _ in server.requests)
    assert first == ""
    assert (set(resumed) == {f"bytes={LAST}-{LARGE - 1}"}) == (not changed)


@pytest.mark.parametrize("has_ranges", [True, False], ids=["ranges", "no-ranges"])
def test_a_broken_connection_is_opened_again(fetch, server, dataset, has_ranges):
    content, server.has_ranges = os.urandom(1 << 20) * (LARGE >> 20), has_ranges
    server.files[PATH] = ServedFile(content, ETAG)
    breaks = itertools.count()

    def break_once(path, position):
        if position == SENT and len(server.requests) > 1 and not next(breaks):
            raise ConnectionError

    server.hook = break_once
    read_receipt(fetch())
    assert next(breaks)
    assert read_contents(dataset) == {"train.jsonl": content}


@pytest.mark.parametrize(
    "replacement",
    [ServedFile(b"x" * LARGE, {"ETag": '"two"'}), ServedFile(b"x", ETAG), ServedFile(b"x" * 2 * LARGE, ETAG)],
    ids=["etag", "smaller", "larger"],
)
def test_a_file_that_changes_during_the_fetch_is_refused(fetch, server, dataset, replacement):
    server.files[PATH] = ServedFile(b"y" * LARGE, ETAG)

    def change(path, position):
        if position == SENT and len(server.requests) > 1:
            server.files[PATH] = replacement
            raise ConnectionError

    server.hook = change
    assert f"{PATH} changed while it was fetched" in failure_message(fetch())
    assert read_contents(dataset) == {}


def test_a_busy_server_is_tried_again(fetch, server, dataset):
    server.busy = 2
    read_receipt(fetch())
    assert read_contents(dataset) == {"train.jsonl": ROWS}


def test_a_server_that_stays_busy_is_reported(server, dataset, monkeypatch):
    monkeypatch.setattr(retries, "_FIRST_PAUSE", 0.001)
    with FileServer({PATH: ServedFile(ROWS, ETAG)}, busy=99) as plain:
        with pytest.raises(FetchError, match=r"can't be fetched: HTTP 503[^\n]*\n.*the step may be repeated"):
            fetch_files(Fetch("dataset", dataset, f"{plain.url}{PATH}#sha256={digest(ROWS)}"), report=lambda line: None)
        assert plain.busy == 99 - retries.ATTEMPTS


def test_a_server_that_never_sends_more_is_reported(dataset, monkeypatch):
    monkeypatch.setattr(retries, "_FIRST_PAUSE", 0.001)

    def break_always(path, position):
        if position == SENT and len(server.requests) > 1:
            raise ConnectionError

    with FileServer({PATH: ServedFile(b"y" * LARGE, ETAG)}) as server:
        server.hook = break_always
        with pytest.raises(FetchError, match=f"the connection ended after {SENT} bytes of train.jsonl"):
            fetch_files(
                Fetch("dataset", dataset, f"{server.url}{PATH}#sha256={digest(ROWS)}"), report=lambda line: None
            )


def test_a_token_stays_on_its_server(fetch, server, origin, dataset):
    """The token is sent again to the same server, but not to the other one of a redirect."""
    server.token = "of-the-test"
    server.redirects["/start"] = PATH
    done = fetch("/start", ACCESS_TOKEN="of-the-test\n")
    assert read_receipt(done)["fetched"] == 1
    assert read_contents(dataset) == {"start": ROWS}
    assert "of-the-test" not in done.stdout + done.stderr
    server.requests.clear()
    server.redirects["/start"] = f"{origin.replace('127.0.0.1', 'localhost')}{PATH}"
    message = failure_message(fetch("/start", ACCESS_TOKEN="of-the-test"))
    assert "/start: access denied (HTTP 401)" in message
    assert [(path, token) for path, _, token in server.requests] == [("/start", "of-the-test"), (PATH, "")]


def test_a_redirect_to_plain_http_is_refused(fetch, server):
    with FileServer({PATH: ServedFile(ROWS, ETAG)}) as plain:
        server.redirects["/start"] = f"{plain.url}{PATH}"
        message = failure_message(fetch("/start"))
        assert plain.requests == []
    assert "/start redirects to http://, without TLS" in message


LOGIN = {**ETAG, "Content-Type": "text/html; charset=utf-8"}
REFUSED = {
    "no-token": ({"token": "of-the-test"}, PATH, "access denied (HTTP 401)", "a Secret with the key ACCESS_TOKEN"),
    "missing": ({}, "/missing.csv", "/missing.csv does not exist (HTTP 404)", "correct the address"),
    "login": (
        {"files": {PATH: ServedFile(b"<html>", LOGIN)}},
        PATH,
        "is a web page (text/html), not the file train.jsonl",
        "the page of a login",
    ),
    "no-length": ({"sends_length": False}, PATH, "the response has no valid length", "put the file into a store"),
    "no-mark": (
        {"files": {PATH: ServedFile(ROWS, {})}},
        PATH,
        "the response has neither ETag nor Last-Modified",
        "add #sha256=HEX",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_reported_in_one_sentence(fetch, server, dataset, case):
    settings, path, *texts = REFUSED[case]
    for name, value in settings.items():
        setattr(server, name, value)
    message = failure_message(fetch(path))
    assert all(text in message for text in texts), message
    assert not dataset.exists() or read_contents(dataset) == {}


def test_a_web_page_that_is_named_is_fetched(fetch, server, dataset):
    server.files["/page.html"] = ServedFile(b"<html>", LOGIN)
    read_receipt(fetch("/page.html"))
    assert read_contents(dataset) == {"page.html": b"<html>"}


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_an_own_authority_is_trusted(run_fetch, origin, authority_file, dataset, variable):
    read_receipt(run_fetch("dataset", f"{origin}{PATH}", NO_PROXY="127.0.0.1", **{variable: authority_file}))
    assert read_contents(dataset) == {"train.jsonl": ROWS}


def test_an_unknown_authority_is_named_with_the_variable(run_fetch, origin):
    message = failure_message(run_fetch("dataset", f"{origin}{PATH}", NO_PROXY="127.0.0.1"))
    assert "set SSL_CERT_FILE in env to a file with the certificate of the store's authority" in message


def test_a_server_that_is_down_is_reported(run_fetch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    message = failure_message(run_fetch("dataset", f"https://127.0.0.1:{port}{PATH}", NO_PROXY="127.0.0.1"))
    assert "Connection refused" in message
    assert "the step may be repeated" in message
