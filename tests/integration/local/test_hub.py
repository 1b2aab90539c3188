"""Tests of the loopback hub with plain HTTP; test_initializer_images.py uses huggingface_hub."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainjob_local.demo.hub import HubServer


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for repository in ("models/demo/tiny", "models/demo/gated", "models/other/gated", "datasets/demo/tickets"):
        folder = tmp_path / "hub" / repository
        (folder / "data").mkdir(parents=True)
        (folder / "config.json").write_text(repository)
        (folder / "data" / "rows").write_bytes(bytes(range(100)))
    (tmp_path / "hub" / "models" / "secret").write_text("not a repository")
    return tmp_path / "hub"


@pytest.fixture
def hub(root: Path) -> Iterator[HubServer]:
    with HubServer(root, tokens={"demo/gated": "hf_right", "other/gated": "hf_other"}) as server:
        yield server


def fetch(url: str, *, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            return response.status, response.read(), dict(response.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), dict(error.headers)


@pytest.mark.parametrize("kind", ["models/demo/tiny", "datasets/demo/tickets"])
def test_a_repository_lists_its_files(hub: HubServer, kind: str) -> None:
    found = json.loads(fetch(f"{hub.url}/api/{kind}/revision/main")[1])
    assert [one["rfilename"] for one in found["siblings"]] == ["config.json", "data/rows"]
    tree = json.loads(fetch(f"{hub.url}/api/{kind}/tree/{found['sha']}?recursive=true")[1])
    assert [(one["path"], one["size"]) for one in tree] == [("config.json", len(kind)), ("data/rows", 100)]


def test_the_commit_changes_with_the_content_and_only_then(hub: HubServer, root: Path) -> None:
    def commit() -> str:
        return str(json.loads(fetch(f"{hub.url}/api/models/demo/tiny")[1])["sha"])

    first = commit()
    assert commit() == first
    (root / "models" / "demo" / "tiny" / "config.json").write_text("changed, longer")
    assert commit() != first


def test_a_file_can_be_read_completely_or_in_part(hub: HubServer) -> None:
    url = f"{hub.url}/datasets/demo/tickets/resolve/main/data/rows"
    status, whole, headers = fetch(url)
    assert (status, whole, headers["Content-Length"]) == (200, bytes(range(100)), "100")
    status, nothing, head = fetch(url, method="HEAD")
    assert (status, nothing, head["ETag"], head["Content-Length"]) == (200, b"", headers["ETag"], "100")
    assert fetch(url, Range="bytes=10-19")[:2] == (206, bytes(range(10, 20)))
    assert fetch(url, Range="bytes=90-")[:2] == (206, bytes(range(90, 100)))


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/demo/tiny/resolve/main/none", 404, "EntryNotFound"),
        ("/demo/tiny/resolve/main/..%2F..%2Fsecret", 404, "EntryNotFound"),
        ("/demo/tiny/resolve/other/config.json", 404, "RevisionNotFound"),
        ("/api/models/demo/none", 401, "RepoNotFound"),
        ("/api/models/..%2F..%2Fetc/x", 404, "EntryNotFound"),
        ("/api/agent-harnesses", 404, "EntryNotFound"),
    ],
)
def test_a_missing_object_has_the_error_of_the_real_hub(hub: HubServer, path: str, status: int, code: str) -> None:
    found, _, headers = fetch(hub.url + path)
    assert (found, headers["X-Error-Code"]) == (status, code)


@pytest.mark.parametrize(
    ("token", "status", "code"),
    [("", 401, "GatedRepo"), ("hf_unknown", 401, None), ("hf_other", 403, "GatedRepo"), ("hf_right", 200, None)],
)
def test_access_by_token(hub: HubServer, token: str, status: int, code: str | None) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    for path in ("/api/models/demo/gated", "/demo/gated/resolve/main/config.json"):
        found, _, answered = fetch(hub.url + path, **headers)
        assert (found, answered.get("X-Error-Code")) == (status, code)


def test_a_stopped_hub_frees_its_port(root: Path) -> None:
    with HubServer(root) as first:
        port = first.port
    with HubServer(root, port) as second:
        assert fetch(f"{second.url}/api/models/demo/tiny")[0] == 200


def test_the_program_prints_its_address_and_ends_on_sigint(root: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "trainjob_local.demo.hub", str(root)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    with process.stdout:
        url = process.stdout.readline().removeprefix("export HF_ENDPOINT=").strip()
        assert fetch(f"{url}/api/models/demo/tiny")[0] == 200
        os.kill(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "stopped\n"
    assert process.wait(60) == 0
