"""Fetches from loopback object stores, the same tests for every kind of store."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

import pytest

from tests.integration.programs.fetch.fetch_results import failure_message, is_complete, read_contents, read_receipt
from tests.support.azure_server import AzureServer
from tests.support.gcs_server import GcsServer
from tests.support.object_server import StoredObject
from tests.support.polling import wait_until
from tests.support.s3_server import S3Server
from trainjob.programs.fetch.part_file import BLOCK_BYTES

SOURCE = "models/tickets/v1"
FILES = {"train.parquet": b"rows" * 9, "more/test.parquet": b"more rows", "notes.md": b"# notes"}
LARGE = 3 * BLOCK_BYTES


@pytest.fixture(params=[S3Server, GcsServer, AzureServer], ids=["s3", "gs", "az"])
def store(request):
    with request.param() as server:
        for name, data in FILES.items():
            server.objects[f"models/tickets/v1/{name}"] = StoredObject(data, {})
        server.objects["models/tickets/v10/other"] = StoredObject(b"another version's", {})
        yield server


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return tmp_path / "workspace" / "dataset"


@pytest.fixture
def fetch_dataset(run_fetch, store):
    def run(prefix=SOURCE, **env):
        return run_fetch("dataset", f"{store.scheme}://{prefix}", ENDPOINT=store.url, **{**store.environment, **env})

    return run


@pytest.mark.parametrize("prefix", [SOURCE, f"{SOURCE}/"])
def test_every_object_below_the_prefix_is_stored_under_the_rest_of_its_key(fetch_dataset, dataset, prefix):
    found = read_receipt(fetch_dataset(prefix))
    assert read_contents(dataset) == FILES
    assert (found["files"], found["fetched"], found["revision"]) == (3, 3, "")
    assert is_complete(dataset)


def test_a_single_object_is_stored_under_its_name(fetch_dataset, dataset):
    read_receipt(fetch_dataset(f"{SOURCE}/more/test.parquet"))
    assert read_contents(dataset) == {"test.parquet": b"more rows"}


@pytest.mark.parametrize(
    ("content", "extension"),
    [
        (b'{"prompt": "a"}\n', ".jsonl"),
        (b'\xef\xbb\xbf {"prompt": "a"}\n', ".jsonl"),
        (b'[{"prompt": "a"}]', ".json"),
        (b"prompt,completion\r\na,b\r\n", ".csv"),
        (b"PAR1\x15\x04PAR1", ".parquet"),
        (b"prompt", ""),
        (b"\x1f\x8b,\n", ""),
        (b"", ""),
    ],
)
def test_a_single_object_without_an_extension_gets_one(fetch_dataset, store, dataset, content, extension):
    store.objects["models/runs/7/rows"] = StoredObject(content, {})
    first = read_receipt(fetch_dataset("models/runs/7/rows"))
    assert read_contents(dataset) == {f"rows{extension}": content}
    assert read_receipt(fetch_dataset("models/runs/7/rows")) == {**first, "fetched": 0}


def test_ignored_objects_are_not_fetched(fetch_dataset, dataset):
    read_receipt(fetch_dataset(IGNORE_PATTERNS="*.md,more/*"))
    assert list(read_contents(dataset)) == ["train.parquet"]


def test_existing_files_are_not_fetched_again(fetch_dataset, store, dataset):
    first = read_receipt(fetch_dataset())
    store.requests.clear()
    assert read_receipt(fetch_dataset()) == {**first, "fetched": 0}
    assert {key for method, key in store.requests if method == "GET"} == {"models"}


def test_only_changed_objects_are_fetched_and_stale_files_are_removed(fetch_dataset, store, dataset):
    read_receipt(fetch_dataset())
    (dataset / "own.txt").write_text("somebody's own")
    store.objects["models/tickets/v1/notes.md"] = StoredObject(b"# eston", {})  # of the same size
    del store.objects["models/tickets/v1/more/test.parquet"]
    assert read_receipt(fetch_dataset())["fetched"] == 1
    assert read_contents(dataset) == {
        "train.parquet": b"rows" * 9,
        "notes.md": b"# eston",
        "own.txt": b"somebody's own",
    }


def test_a_fetch_of_another_prefix_replaces_the_files(fetch_dataset, dataset):
    read_receipt(fetch_dataset())
    read_receipt(fetch_dataset("models/tickets/v10"))
    assert read_contents(dataset) == {"other": b"another version's"}


def test_the_digest_in_an_objects_metadata_is_checked(fetch_dataset, store, dataset):
    store.objects["models/tickets/v1/notes.md"] = StoredObject(b"# other", {"sha256": "0" * 64})
    assert f"notes.md of {store.scheme}://{SOURCE} was damaged during the transfer" in failure_message(fetch_dataset())
    assert not (dataset / "notes.md").exists()
    assert not is_complete(dataset)


def test_an_object_that_changes_during_the_fetch_is_refused(fetch_dataset, store):
    def change(method, key, after):
        if method == "GET" and key.endswith("notes.md"):
            store.objects[key] = StoredObject(b"# eston", {})

    store.hook = change
    assert "changed while it was fetched" in failure_message(fetch_dataset())


def test_a_killed_download_of_a_large_object_is_continued(start_fetch, fetch_dataset, store, dataset):
    content = os.urandom(LARGE)
    key = "models/large/weights.safetensors"
    store.objects[key] = StoredObject(content, {})
    process, parts = [], dataset / ".trainjob-fetch/parts"
    requested = itertools.count(1)

    def kill(method, name, after):
        """Kill the fetch at the request of the third block, when the others are on disk."""
        if (method, name, after) == ("GET", key, False) and next(requested) == 3:
            wait_until(lambda: process and [path.read_bytes().count(1) for path in parts.glob("*.blocks")] == [2])
            os.kill(process[0].pid, signal.SIGKILL)

    store.hook = kill
    process.append(start_fetch("dataset", f"{store.scheme}://models/large", ENDPOINT=store.url, **store.environment))
    process[0].communicate(timeout=300)
    assert process[0].returncode == -signal.SIGKILL
    assert not (dataset / "weights.safetensors").exists()
    store.hook = lambda *_: None
    store.requests.clear()
    read_receipt(fetch_dataset("models/large"))
    assert read_contents(dataset) == {"weights.safetensors": content}
    assert len([name for method, name in store.requests if (method, name) == ("GET", key)]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before-the-store-acts", "before-it-answers"])
def test_a_fetch_killed_at_any_request_is_completed_by_the_next(start_fetch, fetch_dataset, store, dataset, after):
    read_receipt(fetch_dataset())
    for point in range(1, len(store.requests)):
        for path in sorted(dataset.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        store.requests.clear()
        process = start_fetch("dataset", f"{store.scheme}://{SOURCE}", ENDPOINT=store.url, **store.environment)

        def kill(method, key, now, pid=process.pid, point=point):
            if now == after and len(store.requests) >= point:
                os.kill(pid, signal.SIGKILL)

        store.hook = kill
        process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL
        assert not is_complete(dataset)
        store.hook = lambda *_: None
        read_receipt(fetch_dataset())
        assert read_contents(dataset) == FILES
        assert is_complete(dataset)


@pytest.mark.parametrize(
    ("prefix", "known", "message"),
    [
        (SOURCE, False, ": "),
        ("nowhere/v1", True, ": no such bucket"),
        ("models/none", True, " has no file to fetch; it has none"),
    ],
)
def test_a_refusal_is_reported_in_one_sentence_without_secrets(fetch_dataset, store, prefix, known, message):
    env = store.credentials(valid=known)
    failed = fetch_dataset(prefix, **env)
    shown = failure_message(failed)
    assert f"{store.scheme}://{prefix}{message}" in shown
    assert known or f"check {next(iter(env))} " in shown
    assert not any(secret in failed.stdout + shown for secret in (*env.values(), "of-the-test"))


def test_the_region_that_a_bucket_names_is_used(run_fetch, dataset):
    with S3Server(region="eu-west-1") as store:
        for name, data in FILES.items():
            store.objects[f"{SOURCE}/{name}"] = StoredObject(data, {})
        done = run_fetch("dataset", f"s3://{SOURCE}", ENDPOINT=store.url, REGION="us-west-2", **store.environment)
    assert read_receipt(done)["fetched"] == 3
    assert read_contents(dataset) == FILES


@pytest.mark.parametrize("identity", [{}, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/none", "AWS_ROLE_ARN": "arn"}])
def test_a_public_bucket_needs_no_credentials(run_fetch, dataset, identity):
    """A pod whose identity does not work gets an error, because it would miss the objects of its own buckets."""
    with S3Server(public_buckets=("models",), buckets=("models", "private")) as store:
        for name, data in FILES.items():
            store.objects[f"{SOURCE}/{name}"] = StoredObject(data, {})
        done = run_fetch("dataset", f"s3://{SOURCE}", ENDPOINT=store.url, **identity)
        refused = run_fetch("dataset", "s3://private/v1", ENDPOINT=store.url, **identity)
    if identity:
        assert "no valid credentials" in failure_message(done)
    else:
        assert read_receipt(done)["fetched"] == 3
        assert read_contents(dataset) == FILES
        assert "s3://private/v1: access denied (AccessDenied: AccessDenied)" in failure_message(refused)
