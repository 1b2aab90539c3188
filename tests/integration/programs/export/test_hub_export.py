"""Exports to a loopback Hugging Face hub with the real client."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.programs.export.export_program import RunExport, StartExport, read_receipt
from tests.integration.programs.export.hub_uploads import Uploads, upload_hub
from tests.support.export_runs import make_run, read_tree, write
from trainjob_local.demo.hub import HubServer

TOKEN = "hf_token_of_the_test"


@pytest.fixture
def uploads() -> Uploads:
    return Uploads(TOKEN)


@pytest.fixture
def hub(tmp_path: Path, uploads: Uploads) -> Iterator[HubServer]:
    (tmp_path / "hub" / "models").mkdir(parents=True)
    with upload_hub(tmp_path / "hub", uploads) as server:
        yield server


@pytest.mark.parametrize(("folder", "path"), [("", "models/org/name"), ("/v1/final", "models/org/name/v1/final")])
def test_one_commit_contains_the_whole_export(
    workspace: Path, run_export: RunExport, hub: HubServer, uploads: Uploads, folder: str, path: str
) -> None:
    run_export(workspace / "export")
    done = read_receipt(run_export(f"hf://org/name{folder}", "--endpoint", hub.url, ACCESS_TOKEN=TOKEN))
    assert read_tree(Path(hub.root) / path) == read_tree(workspace / "export")
    assert (len(uploads.commits), done["sent"], len(str(done["revision"]))) == (1, 8, 40)


def test_a_second_export_commits_nothing(run_export: RunExport, hub: HubServer, uploads: Uploads) -> None:
    first = read_receipt(run_export("hf://org/name", "--endpoint", hub.url, HF_TOKEN=TOKEN))
    second = read_receipt(run_export("hf://org/name", HF_TOKEN=TOKEN, HF_ENDPOINT=hub.url))
    assert second == {**first, "sent": 0}
    assert len(uploads.commits) == 1


def test_stale_files_are_deleted_in_the_same_commit_and_others_stay(
    workspace: Path, run_export: RunExport, hub: HubServer, uploads: Uploads
) -> None:
    repository = Path(hub.root) / "models" / "org" / "name"
    write(repository / ".gitattributes", "lfs")
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output", shards=2)
    read_receipt(run_export("hf://org/name", "--endpoint", hub.url, ACCESS_TOKEN=TOKEN))
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output")
    read_receipt(run_export("hf://org/name", "--endpoint", hub.url, ACCESS_TOKEN=TOKEN))
    run_export(workspace / "export")
    assert read_tree(repository) == {**read_tree(workspace / "export"), ".gitattributes": b"lfs"}
    assert uploads.commits[1] == {
        "manifest.json": "file",
        "model.safetensors": "lfsFile",
        "model-00001-of-00002.safetensors": "deletedFile",
        "model-00002-of-00002.safetensors": "deletedFile",
        "model.safetensors.index.json": "deletedFile",
    }


@pytest.mark.parametrize(
    ("path_part", "after"), [("/lfs/", False), ("/lfs/", True), ("/commit/", False), ("/commit/", True)]
)
def test_an_export_killed_at_an_upload_or_the_commit_is_completed_by_the_next(
    workspace: Path,
    start_export: StartExport,
    run_export: RunExport,
    hub: HubServer,
    uploads: Uploads,
    path_part: str,
    after: bool,
) -> None:
    process = start_export("hf://org/name", "--endpoint", hub.url, ACCESS_TOKEN=TOKEN)

    def kill(path: str, now: bool) -> None:
        if path_part in path and now == after:
            os.kill(process.pid, signal.SIGKILL)

    uploads.hook = kill
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    sent: list[str] = []
    uploads.hook = lambda path, now: sent.append(path) if path.startswith("/lfs/") and now else None
    read_receipt(run_export("hf://org/name", "--endpoint", hub.url, ACCESS_TOKEN=TOKEN))
    if after or path_part == "/commit/":
        assert sent == []  # the weights had arrived
    run_export(workspace / "export")
    assert read_tree(Path(hub.root) / "models" / "org" / "name") == read_tree(workspace / "export")


def test_a_token_without_write_access_is_reported_in_one_sentence_and_not_shown(
    run_export: RunExport, hub: HubServer
) -> None:
    failed = run_export("hf://org/name", "--endpoint", hub.url, ACCESS_TOKEN="hf_another_token")
    assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 2)
    assert "hf://org/name@main: access denied (403)" in failed.stderr
    assert "hf_another_token" not in failed.stdout + failed.stderr


def test_a_foreign_manifest_is_not_replaced(run_export: RunExport, hub: HubServer, uploads: Uploads) -> None:
    write(Path(hub.root) / "models" / "org" / "name" / "manifest.json", "{}")
    failed = run_export("hf://org/name", "--endpoint", hub.url, ACCESS_TOKEN=TOKEN)
    assert (failed.returncode, uploads.commits) == (1, [])
    assert "no export wrote" in failed.stderr
