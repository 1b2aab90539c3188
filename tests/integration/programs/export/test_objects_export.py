"""Exports into loopback object stores, the same tests for every kind of store."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.programs.export.export_program import RunExport, StartExport, read_receipt
from tests.support.azure_server import AzureServer
from tests.support.export_runs import make_epoch, make_run, read_tree
from tests.support.gcs_server import GcsServer
from tests.support.object_server import ObjectServer, StoredObject
from tests.support.s3_server import S3Server

DESTINATION = "models/tickets/v1"


@pytest.fixture(params=[S3Server, GcsServer, AzureServer], ids=["s3", "gs", "az"])
def store(request: pytest.FixtureRequest) -> Iterator[ObjectServer]:
    with request.param() as server:
        yield server


def export_arguments(store: ObjectServer, prefix: str = DESTINATION) -> tuple[str, ...]:
    return f"{store.scheme}://{prefix}", "--endpoint", store.url


def test_an_export_to_a_store_has_the_same_files_as_one_to_a_folder(
    workspace: Path, run_export: RunExport, store: ObjectServer
) -> None:
    run_export(workspace / "export")
    assert read_receipt(run_export(*export_arguments(store), **store.environment))["sent"] == 8
    assert store.read_prefix(DESTINATION) == read_tree(workspace / "export")
    manifest = json.loads(store.objects[f"{DESTINATION}/manifest.json"].data)
    for name, entry in manifest["files"].items():
        assert store.objects[f"{DESTINATION}/{name}"].metadata == {"sha256": entry["sha256"]}


def test_the_manifest_is_written_last(run_export: RunExport, store: ObjectServer) -> None:
    run_export(*export_arguments(store), **store.environment)
    put = [key.removeprefix(f"{DESTINATION}/") for key in store.sent_keys()]
    assert (put[0], put[-1]) == ("manifest.pending.json", "manifest.json")


def test_a_second_export_sends_nothing(run_export: RunExport, store: ObjectServer) -> None:
    first = read_receipt(run_export(*export_arguments(store), **store.environment))
    before = dict(store.objects)
    store.requests.clear()
    assert read_receipt(run_export(*export_arguments(store), **store.environment)) == {**first, "sent": 0}
    assert [write for write in store.list_writes() if "pending" not in write[1]] == []
    assert store.objects == before


def test_only_changed_files_are_sent_and_stale_ones_are_deleted(
    workspace: Path, run_export: RunExport, store: ObjectServer
) -> None:
    store.objects[f"{DESTINATION}/somebody.else"] = StoredObject(b"stays", {})
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output", shards=2)
    run_export(*export_arguments(store), **store.environment)
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output")
    store.requests.clear()
    assert read_receipt(run_export(*export_arguments(store), **store.environment))["sent"] == 2
    run_export(workspace / "export")
    assert store.read_prefix(DESTINATION) == {**read_tree(workspace / "export"), "somebody.else": b"stays"}


def test_an_existing_manifest_always_matches_the_objects(
    workspace: Path, run_export: RunExport, store: ObjectServer
) -> None:
    """After every request, an existing manifest names exactly the existing objects and their content."""
    mismatches = []

    def check(method: str, key: str, after: bool) -> None:
        found = store.read_prefix(DESTINATION)
        if after and "manifest.json" in found:
            entries = json.loads(found["manifest.json"])["files"]
            sizes = {name: len(found.get(name, b"")) for name in entries}
            digests = {name: store.objects[f"{DESTINATION}/{name}"].metadata["sha256"] for name in entries}
            if any(entry != {"sha256": digests[name], "size": sizes[name]} for name, entry in entries.items()):
                mismatches.append((method, key))

    store.hook = check
    for seed, shards in (("a", 1), ("b", 3), ("c", 2)):
        shutil.rmtree(workspace / "output")
        make_run(workspace / "output", seed=seed, shards=shards)
        read_receipt(run_export(*export_arguments(store), **store.environment))
    assert mismatches == []


@pytest.mark.parametrize("after", [False, True], ids=["before-the-store-acts", "before-the-store-answers"])
@pytest.mark.parametrize("store", [S3Server, pytest.param(GcsServer, marks=pytest.mark.slow)], indirect=True)
def test_an_export_killed_at_any_request_is_completed_by_the_next(
    workspace: Path, start_export: StartExport, run_export: RunExport, store: ObjectServer, after: bool
) -> None:
    run_export(workspace / "export")
    expected = read_tree(workspace / "export")
    later = workspace / "later"
    (workspace / "output").rename(later)
    make_run(workspace / "output", shards=2, seed="b")
    read_receipt(run_export(*export_arguments(store), **store.environment))
    shutil.rmtree(workspace / "output")
    later.rename(workspace / "output")
    earlier = dict(store.objects)
    killed = 0
    for point in range(0, 60, 5):
        store.objects = dict(earlier)
        store.requests.clear()
        process = start_export(*export_arguments(store), **store.environment)

        def kill(_: str, __: str, now: bool, pid: int = process.pid, point: int = point) -> None:
            if now == after and len(store.requests) >= point:
                os.kill(pid, signal.SIGKILL)

        store.hook = kill
        process.communicate(timeout=300)
        store.hook = lambda *_: None
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        killed += 1
        read_receipt(run_export(*export_arguments(store), **store.environment))
        assert store.read_prefix(DESTINATION) == expected
    assert killed >= 4


def test_files_of_an_unfinished_export_are_deleted_by_the_next(
    workspace: Path, start_export: StartExport, run_export: RunExport, store: ObjectServer
) -> None:
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output", shards=3)
    process = start_export(*export_arguments(store), **store.environment)

    def kill(method: str, key: str, after: bool) -> None:
        if after and len([name for name in store.objects if "-of-00003" in name]) == 3:
            os.kill(process.pid, signal.SIGKILL)

    store.hook = kill
    process.communicate(timeout=300)
    store.hook = lambda *_: None
    assert f"{DESTINATION}/manifest.json" not in store.objects
    shutil.rmtree(workspace / "output")
    make_run(workspace / "output")
    read_receipt(run_export(*export_arguments(store), **store.environment))
    run_export(workspace / "export")
    assert store.read_prefix(DESTINATION) == read_tree(workspace / "export")


def test_large_files_are_uploaded_in_parts(workspace: Path, run_export: RunExport, store: ObjectServer) -> None:
    make_epoch(workspace / "output", 1, size=17 << 20)
    read_receipt(run_export(*export_arguments(store), **store.environment))
    assert store.requests.count(("PUT", f"{DESTINATION}/model.safetensors")) == 3
    found = store.objects[f"{DESTINATION}/model.safetensors"]
    assert found.data == (workspace / "output/epoch_1/model-00001-of-00001.safetensors").read_bytes()
    assert read_receipt(run_export(*export_arguments(store), **store.environment))["sent"] == 0


def test_a_foreign_manifest_is_not_replaced(run_export: RunExport, store: ObjectServer) -> None:
    store.objects[f"{DESTINATION}/manifest.json"] = StoredObject(b'{"a": 1}', {})
    failed = run_export(*export_arguments(store), **store.environment)
    assert failed.returncode == 1
    assert "no export wrote" in failed.stderr
    assert store.list_writes() == []


@pytest.mark.parametrize(
    ("prefix", "known", "message"), [(DESTINATION, False, ""), ("nowhere/v1", True, "no such bucket")]
)
def test_a_refusal_is_reported_in_one_sentence_without_secrets(
    run_export: RunExport, store: ObjectServer, prefix: str, known: bool, message: str
) -> None:
    env = store.credentials(valid=known)
    failed = run_export(*export_arguments(store, prefix), **env)
    assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 2)
    assert f"{store.scheme}://{prefix}: {message}" in failed.stderr
    assert known or f"check {next(iter(env))} " in failed.stderr
    shown = failed.stdout + failed.stderr
    assert not any(secret in shown for secret in (*env.values(), "of-the-test"))


@pytest.mark.slow
@pytest.mark.parametrize("store", [S3Server], indirect=True)
def test_an_unreachable_store_is_reported_in_one_sentence(run_export: RunExport, store: ObjectServer) -> None:
    with type(store)() as stopped:
        url = stopped.url
    failed = run_export(f"{store.scheme}://{DESTINATION}", "--endpoint", url, **store.environment)
    assert failed.returncode == 1
    assert "check the endpoint" in failed.stderr


def test_objects_uploaded_before_a_kill_are_not_sent_again(
    start_export: StartExport, run_export: RunExport, store: ObjectServer
) -> None:
    process = start_export(*export_arguments(store), **store.environment)

    def kill(method: str, key: str, after: bool) -> None:
        if after and method in ("PUT", "POST") and len(store.objects) >= 4:
            os.kill(process.pid, signal.SIGKILL)

    store.hook = kill
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    store.hook = lambda *_: None
    arrived = {key for key in store.objects if not key.endswith(".pending.json")}
    store.requests.clear()
    sent = read_receipt(run_export(*export_arguments(store), **store.environment))["sent"]
    assert sent <= 8 - len(arrived)  # more uploads may have completed during the kill
    assert arrived & set(store.sent_keys()) == set()


def kill_at_a_part(start_export: StartExport, store: ObjectServer) -> None:
    """Kill an export when parts of two objects have arrived."""
    process = start_export(*export_arguments(store), **store.environment)

    def kill(method: str, key: str, after: bool) -> None:
        if after and sum(bool(parts) for parts in store.uploaded_parts.values()) > 1:
            os.kill(process.pid, signal.SIGKILL)

    store.hook = kill
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    store.hook = lambda *_: None


@pytest.mark.parametrize("store", [S3Server], indirect=True)
def test_unfinished_uploads_of_a_killed_export_are_ended(
    workspace: Path, start_export: StartExport, run_export: RunExport, store: ObjectServer
) -> None:
    make_epoch(workspace / "output", 1, shards=3, size=17 << 20)
    kill_at_a_part(start_export, store)
    assert store.uploaded_parts
    store.uploaded_parts["foreign"], store.upload_keys["foreign"] = {1: b"x"}, f"{DESTINATION}/notes.txt"
    done = run_export(*export_arguments(store), **store.environment)
    assert read_receipt(done)["sent"]
    assert list(store.uploaded_parts) == ["foreign"]
    assert "unfinished uploads" in done.stdout
    run_export(workspace / "export")
    assert store.read_prefix(DESTINATION) == read_tree(workspace / "export")


@pytest.mark.parametrize("store", [S3Server], indirect=True)
def test_unfinished_uploads_that_may_not_be_listed_are_reported(
    workspace: Path, start_export: StartExport, run_export: RunExport, store: ObjectServer
) -> None:
    make_epoch(workspace / "output", 1, shards=3, size=17 << 20)
    kill_at_a_part(start_export, store)
    store.denies_list_of_uploads = True
    done = run_export(*export_arguments(store), **store.environment)
    assert read_receipt(done)["sent"]
    assert "export: unfinished uploads can't be ended (HTTP Error 403" in done.stdout
    assert "AbortIncompleteMultipartUpload" in done.stdout


@pytest.mark.parametrize("store", [S3Server], indirect=True)
def test_a_failed_export_ends_its_uploads(workspace: Path, run_export: RunExport, store: ObjectServer) -> None:
    make_epoch(workspace / "output", 1, shards=2, size=17 << 20)
    weights = workspace / "output/epoch_1/model-00002-of-00002.safetensors"

    def change(method: str, key: str, after: bool) -> None:
        if not store.uploaded_parts and key.endswith(".pending.json"):
            weights.write_bytes(weights.read_bytes().replace(b"a", b"b"))

    store.hook = change
    failed = run_export(*export_arguments(store), **store.environment)
    assert failed.returncode == 1
    assert "changed while it was exported" in failed.stderr
    assert not store.uploaded_parts


@pytest.mark.parametrize("store", [S3Server], indirect=True)
def test_a_refused_upload_is_an_access_problem(workspace: Path, run_export: RunExport, store: ObjectServer) -> None:
    make_epoch(workspace / "output", 1, size=17 << 20)
    refused = b"<Error><Code>AccessDenied</Code><Message>no s3:PutObject</Message></Error>"
    handler = type(
        "Refusing",
        (store.handler,),
        {"handle_multipart_request": lambda self, key, query, *_: (403, refused, {}) if "uploads" in query else None},
    )
    with type("Store", (S3Server,), {"handler": handler})() as refusing:
        failed = run_export(*export_arguments(refusing), **refusing.environment)
    assert failed.returncode == 1
    assert "access denied (AccessDenied: no s3:PutObject)" in failed.stderr
    assert "check ACCESS_KEY_ID" in failed.stderr


def test_the_requester_pays_and_objects_are_encrypted(workspace: Path, run_export: RunExport) -> None:
    make_epoch(workspace / "output", 1, size=17 << 20)
    seen: list[tuple[str, str, dict[str, str]]] = []

    class Handler(S3Server.handler):
        def check_access(self, key: str):
            seen.append((self.command, self.path, {name.lower(): value for name, value in self.headers.items()}))
            return super().check_access(key)

    settings = {
        "AWS_REQUEST_PAYER": "true",
        "AWS_SERVER_SIDE_ENCRYPTION": "aws:kms",
        "AWS_SSE_KMS_KEY_ID": "alias/models",
    }
    with type("Store", (S3Server,), {"handler": Handler})() as store:
        read_receipt(run_export(*export_arguments(store), **store.environment, **settings))
    unpaid = [(method, path) for method, path, headers in seen if headers.get("x-amz-request-payer") != "requester"]
    assert not unpaid
    created = [
        headers
        for method, path, headers in seen
        if (method == "PUT" and "partNumber" not in path) or (method == "POST" and path.endswith("?uploads"))
    ]
    assert len(created) >= 9
    for headers in created:
        assert headers["x-amz-server-side-encryption"] == "aws:kms"
        assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "alias/models"


def test_the_region_that_a_bucket_names_is_used(run_export: RunExport) -> None:
    with S3Server(region="eu-west-1") as store:
        done = run_export(*export_arguments(store), "--region", "us-west-2", **store.environment)
    assert read_receipt(done)["sent"] == len(store.objects) == 8


def test_a_bucket_of_another_region_is_reported_if_the_store_does_not_name_it(run_export: RunExport) -> None:
    with S3Server(region="eu-west-1", names_region=False) as store:
        failed = run_export(*export_arguments(store), "--region", "us-west-2", **store.environment)
    assert "the bucket is not in the region us-west-2" in failed.stderr
    assert "set `region` of the step to that of the bucket" in failed.stderr
