"""Credentials of Google Cloud Storage: all supported forms, and the errors for invalid ones."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.programs.export.export_program import RunExport, StartExport
from tests.support.gcs_server import GcsServer

DESTINATION = "gs://models/tickets"


@pytest.fixture
def store() -> Iterator[GcsServer]:
    with GcsServer() as server:
        yield server


def test_a_workload_identity_needs_no_secret(run_export: RunExport, store: GcsServer) -> None:
    store.has_identity = True
    done = run_export(DESTINATION, "--endpoint", store.url, GCE_METADATA_HOST=store.url.removeprefix("http://"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "manifest.json" in store.read_prefix("models/tickets")


def test_a_key_file_may_be_mounted(run_export: RunExport, store: GcsServer, tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text(store.environment["GOOGLE_CREDENTIALS"])
    done = run_export(DESTINATION, "--endpoint", store.url, GOOGLE_APPLICATION_CREDENTIALS=str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "manifest.json" in store.read_prefix("models/tickets")


def test_missing_credentials_are_reported_with_advice(run_export: RunExport, store: GcsServer) -> None:
    failed = run_export(DESTINATION, "--endpoint", store.url, GCE_METADATA_HOST=store.url.removeprefix("http://"))
    assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 2)
    assert f"{DESTINATION}: no valid credentials (failed to load signing credential)" in failed.stderr
    assert "check GOOGLE_CREDENTIALS in the step's secret, or the pod's service account" in failed.stderr


def test_a_rejected_access_token_is_reported_in_one_sentence(run_export: RunExport, store: GcsServer) -> None:
    host, store.has_identity = store.url.removeprefix("http://"), True

    def expire(method: str, key: str, after: bool) -> None:
        store.access_token = "another"

    store.hook = expire
    failed = run_export(DESTINATION, "--endpoint", store.url, GCE_METADATA_HOST=host)
    assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 2)
    assert f"{DESTINATION}: access denied (401: Invalid Credentials)" in failed.stderr
    assert "it must be allowed to read, write and delete" in failed.stderr


@pytest.mark.parametrize("content", ["/var/run/key.json", "[1]", '{"private_key": "the-private-key"}', "{" * 9999])
def test_an_invalid_key_file_is_refused_and_not_shown(run_export: RunExport, store: GcsServer, content: str) -> None:
    failed = run_export(DESTINATION, "--endpoint", store.url, GOOGLE_CREDENTIALS=content)
    assert failed.returncode == 2
    assert "GOOGLE_CREDENTIALS cannot be ***: it must be the content of a key file" in failed.stderr
    assert content not in failed.stderr
    assert "the-private-key" not in failed.stderr
    assert store.requests == []


@pytest.mark.skipif(not shutil.which("openssl"), reason="there is no openssl to make a key with")
def test_a_service_accounts_key_is_sent_to_google_only(start_export: StartExport, store: GcsServer) -> None:
    """The token is requested from Google, and not from the `token_uri` of the key file."""
    # opendal 0.47 ignores `token_uri`. The test observes the request at a proxy, because it must not reach Google.
    key = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True, text=True).stdout
    account = {"type": "service_account", "client_email": "a@b.iam.gserviceaccount.com", "private_key": key}
    account["token_uri"] = f"{store.url}/token"
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(60)
        process = start_export(
            DESTINATION,
            *("--endpoint", store.url),
            GOOGLE_CREDENTIALS=json.dumps(account),
            HTTPS_PROXY=f"http://127.0.0.1:{proxy.getsockname()[1]}",
        )
        connection, _ = proxy.accept()
        with connection:
            request_line = connection.recv(4096).split(b"\r\n")[0]
        process.kill()
    shown = "".join(process.communicate(timeout=300))
    assert request_line == b"CONNECT oauth2.googleapis.com:443 HTTP/1.1"
    assert "PRIVATE KEY" not in shown
    assert store.requests == []
