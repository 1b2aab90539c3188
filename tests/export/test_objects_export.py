"""Exports into an object store, over the wire."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from export_program import RunExport, StartExport
from export_runs import make_epoch, make_run, tree
from s3_server import S3Server, Stored

HERE = "s3://models/tickets/v1"


@pytest.fixture
def store() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


def receipt(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1].removeprefix("export: done "))
    return found


def test_the_objects_are_those_of_the_folder(workspace: Path, run_export: RunExport, store: S3Server) -> None:
    run_export(workspace / "export")
    assert receipt(run_export(HERE, "--endpoint", store.url, **store.environment))["sent"] == 7
    assert store.below("models/tickets/v1") == tree(workspace / "export")
    manifest = json.loads(store.objects["models/tickets/v1/manifest.json"].data)
    for name, facts in manifest["files"].items():
        assert store.objects[f"models/tickets/v1/{name}"].headers == {"x-amz-meta-sha256": facts["sha256"]}


def test_the_manifest_is_written_last(run_export: RunExport, store: S3Server) -> None:
    run_export(HERE, "--endpoint", store.url, **store.environment)
    put = [key.removeprefix("models/tickets/v1/") for method, key in store.requests if method == "PUT"]
    assert (put[0], put[-1]) == ("manifest.pending.json", "manifest.json")


def test_a_second_export_sends_nothing(run_export: RunExport, store: S3Server) -> None:
    first = receipt(run_export(HERE, "--endpoint", store.url, **store.environment))
    before = dict(store.objects)
    store.requests.clear()
    assert receipt(run_export(HERE, "--endpoint", store.url, **store.environment)) == {**first, "sent": 0}
    assert [write for write in store.writes() if "pending" not in write[1]] == []
    assert store.objects == before


def test_only_what_changed_is_sent_and_what_is_stale_is_removed(
    workspace: Path, run_export: RunExport, store: S3Server
) -> None:
    store.objects["models/tickets/v1/somebody.else"] = Stored(b"stays", {})
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output", shards=2)
    run_export(HERE, "--endpoint", store.url, **store.environment)
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output")
    store.requests.clear()
    assert receipt(run_export(HERE, "--endpoint", store.url, **store.environment))["sent"] == 2
    run_export(workspace / "export")
    assert store.below("models/tickets/v1") == {**tree(workspace / "export"), "somebody.else": b"stays"}


def test_a_reader_never_finds_a_manifest_of_other_contents(
    workspace: Path, run_export: RunExport, store: S3Server
) -> None:
    """After every request: a manifest that is there names exactly what is there."""
    torn = []

    def look(method: str, key: str, after: bool) -> None:
        found = store.below("models/tickets/v1")
        if after and "manifest.json" in found:
            sealed = json.loads(found["manifest.json"])["files"]
            sizes = {name: len(found.get(name, b"")) for name in sealed}
            marks = {name: store.objects[f"models/tickets/v1/{name}"].headers["x-amz-meta-sha256"] for name in sealed}
            if any(facts != {"sha256": marks[name], "size": sizes[name]} for name, facts in sealed.items()):
                torn.append((method, key))

    store.hook = look
    for seed, shards in (("a", 1), ("b", 3), ("c", 2)):
        shutil.rmtree(workspace / "output")
        make_run(workspace / "output", seed=seed, shards=shards)
        receipt(run_export(HERE, "--endpoint", store.url, **store.environment))
    assert torn == []


@pytest.mark.parametrize("after", [False, True], ids=["before-the-store-acts", "before-the-store-answers"])
def test_killed_at_any_request_and_run_again_gives_the_same(
    workspace: Path, start_export: StartExport, run_export: RunExport, store: S3Server, after: bool
) -> None:
    run_export(workspace / "export")
    wanted = tree(workspace / "export")
    later = workspace / "later"
    (workspace / "output").rename(later)
    make_run(workspace / "output", shards=2, seed="b")
    receipt(run_export(HERE, "--endpoint", store.url, **store.environment))
    shutil.rmtree(workspace / "output")
    later.rename(workspace / "output")
    earlier = dict(store.objects)
    killed = 0
    for point in range(0, 60, 5):
        store.objects = dict(earlier)
        store.requests.clear()
        process = start_export(HERE, "--endpoint", store.url, **store.environment)

        def kill(_: str, __: str, now: bool, pid: int = process.pid, point: int = point) -> None:
            if now == after and len(store.requests) >= point:
                os.kill(pid, signal.SIGKILL)

        store.hook = kill
        process.communicate(timeout=30)
        store.hook = lambda *_: None
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        killed += 1
        receipt(run_export(HERE, "--endpoint", store.url, **store.environment))
        assert store.below("models/tickets/v1") == wanted
    assert killed >= 4


def test_an_export_that_was_never_finished_leaves_nothing_behind(
    workspace: Path, start_export: StartExport, run_export: RunExport, store: S3Server
) -> None:
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output", shards=3)
    process = start_export(HERE, "--endpoint", store.url, **store.environment)

    def kill(method: str, key: str, after: bool) -> None:
        if after and len([name for name in store.objects if "-of-00003" in name]) == 3:
            os.kill(process.pid, signal.SIGKILL)

    store.hook = kill
    process.communicate(timeout=30)
    store.hook = lambda *_: None
    assert "models/tickets/v1/manifest.json" not in store.objects
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output")
    receipt(run_export(HERE, "--endpoint", store.url, **store.environment))
    run_export(workspace / "export")
    assert store.below("models/tickets/v1") == tree(workspace / "export")


def test_large_files_go_in_parts(workspace: Path, run_export: RunExport, store: S3Server) -> None:
    make_epoch(workspace / "output", 1, size=17 << 20)
    receipt(run_export(HERE, "--endpoint", store.url, **store.environment))
    assert any(method == "POST" for method, _ in store.requests)
    found = store.objects["models/tickets/v1/model.safetensors"]
    assert found.data == (workspace / "output/epoch_1/model-00001-of-00001.safetensors").read_bytes()
    assert receipt(run_export(HERE, "--endpoint", store.url, **store.environment))["sent"] == 0


def test_a_foreign_manifest_is_not_replaced(run_export: RunExport, store: S3Server) -> None:
    store.objects["models/tickets/v1/manifest.json"] = Stored(b'{"a": 1}', {})
    failed = run_export(HERE, "--endpoint", store.url, **store.environment)
    assert failed.returncode == 1
    assert "no export wrote" in failed.stderr
    assert store.writes() == []


@pytest.mark.parametrize(
    ("destination", "key", "says"),
    [(HERE, "another-key", "access denied"), ("s3://nowhere/v1", "access-key-of-the-test", "no such bucket")],
)
def test_a_refusal_is_one_sentence_without_secrets(
    run_export: RunExport, store: S3Server, destination: str, key: str, says: str
) -> None:
    env = {"ACCESS_KEY_ID": key, "SECRET_ACCESS_KEY": "secret-key-of-the-test"}
    failed = run_export(destination, "--endpoint", store.url, **env)
    assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 2)
    assert says in failed.stderr
    assert key not in failed.stdout + failed.stderr
    assert "secret-key-of-the-test" not in failed.stdout + failed.stderr


@pytest.mark.slow
def test_a_store_that_is_not_there_is_one_sentence(run_export: RunExport, store: S3Server) -> None:
    url, env = store.url, store.environment
    store.__exit__()
    try:
        failed = run_export(HERE, "--endpoint", url, **env)
    finally:
        store.__enter__()
    assert failed.returncode == 1
    assert "check the endpoint" in failed.stderr
