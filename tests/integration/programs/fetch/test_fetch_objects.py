"""Fetching from object stores, over the wire: the same for every kind of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.integration.programs.fetch.fetched import contents, is_whole, receipt, refusal
from tests.support.gcs_server import GcsServer
from tests.support.object_server import Stored
from tests.support.s3_server import S3Server

HERE = "models/tickets/v1"
FILES = {"train.parquet": b"rows" * 9, "more/test.parquet": b"more rows", "notes.md": b"# notes"}
LARGE = 20 << 20


@pytest.fixture(params=[S3Server, GcsServer], ids=["s3", "gs"])
def store(request):
    with request.param() as server:
        for name, data in FILES.items():
            server.objects[f"models/tickets/v1/{name}"] = Stored(data, {})
        server.objects["models/tickets/v10/other"] = Stored(b"another version's", {})
        yield server


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return tmp_path / "workspace" / "dataset"


@pytest.fixture
def get(run_fetch, store):
    def run(place=HERE, **env):
        return run_fetch("dataset", f"{store.scheme}://{place}", ENDPOINT=store.url, **{**store.environment, **env})

    return run


@pytest.mark.parametrize("place", [HERE, f"{HERE}/"])
def test_every_object_below_the_prefix_goes_under_the_rest_of_its_key(get, dataset, place):
    found = receipt(get(place))
    assert contents(dataset) == FILES
    assert (found["files"], found["fetched"], found["revision"]) == (3, 3, "")
    assert is_whole(dataset)


def test_one_object_goes_under_its_name(get, dataset):
    receipt(get(f"{HERE}/more/test.parquet"))
    assert contents(dataset) == {"test.parquet": b"more rows"}


def test_what_is_ignored_is_not_fetched(get, dataset):
    receipt(get(IGNORE_PATTERNS="*.md,more/*"))
    assert list(contents(dataset)) == ["train.parquet"]


def test_what_is_there_is_not_fetched_again(get, store, dataset):
    first = receipt(get())
    store.requests.clear()
    assert receipt(get()) == {**first, "fetched": 0}
    assert {key for method, key in store.requests if method == "GET"} == {"models"}


def test_only_what_changed_is_fetched_and_what_is_stale_is_removed(get, store, dataset):
    receipt(get())
    (dataset / "own.txt").write_text("somebody's own")
    store.objects["models/tickets/v1/notes.md"] = Stored(b"# eston", {})  # of the same size
    del store.objects["models/tickets/v1/more/test.parquet"]
    assert receipt(get())["fetched"] == 1
    assert contents(dataset) == {"train.parquet": b"rows" * 9, "notes.md": b"# eston", "own.txt": b"somebody's own"}


def test_another_prefix_takes_the_folder_over(get, dataset):
    receipt(get())
    receipt(get("models/tickets/v10"))
    assert contents(dataset) == {"other": b"another version's"}


def test_the_digest_that_an_export_left_is_checked(get, store, dataset):
    store.objects["models/tickets/v1/notes.md"] = Stored(b"# other", {"sha256": "0" * 64})
    assert f"notes.md of {store.scheme}://{HERE} arrives damaged" in refusal(get())
    assert not (dataset / "notes.md").exists()
    assert not is_whole(dataset)


def test_an_object_that_changes_meanwhile_is_not_mixed(get, store):
    def change(method, key, after):
        if method == "GET" and key.endswith("notes.md"):
            store.objects[key] = Stored(b"# eston", {})

    store.hook = change
    assert "changed while it was fetched" in refusal(get())


def test_a_large_object_goes_on_where_it_was_broken_off(start_fetch, get, store, dataset):
    content = os.urandom(1 << 20) * (LARGE >> 20)
    key = "models/large/weights.safetensors"
    store.objects[key] = Stored(content, {})
    ranges = []
    process = start_fetch("dataset", f"{store.scheme}://models/large", ENDPOINT=store.url, **store.environment)

    def kill(method, asked, after):
        if method == "GET" and asked == key and not after:
            ranges.append(asked)
            if len(ranges) == 3:
                os.kill(process.pid, signal.SIGKILL)

    store.hook = kill
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not (dataset / "weights.safetensors").exists()
    store.hook = lambda *_: None
    store.requests.clear()
    receipt(get("models/large"))
    assert contents(dataset) == {"weights.safetensors": content}
    assert len([asked for method, asked in store.requests if (method, asked) == ("GET", key)]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before-the-store-acts", "before-it-answers"])
def test_killed_at_any_request_and_run_again_it_is_whole(start_fetch, get, store, dataset, after):
    receipt(get())
    for point in range(1, len(store.requests)):
        for path in sorted(dataset.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        store.requests.clear()
        process = start_fetch("dataset", f"{store.scheme}://{HERE}", ENDPOINT=store.url, **store.environment)

        def kill(method, key, now, pid=process.pid, point=point):
            if now == after and len(store.requests) >= point:
                os.kill(pid, signal.SIGKILL)

        store.hook = kill
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        assert not is_whole(dataset)
        store.hook = lambda *_: None
        receipt(get())
        assert contents(dataset) == FILES
        assert is_whole(dataset)


@pytest.mark.parametrize(
    ("place", "known", "says"),
    [
        (HERE, False, ": "),
        ("nowhere/v1", True, ": no such bucket"),
        ("models/none", True, " has no object that is wanted; it has none"),
    ],
)
def test_a_refusal_is_one_sentence_without_secrets(get, store, place, known, says):
    env = store.credentials(known=known)
    failed = get(place, **env)
    said = refusal(failed)
    assert f"{store.scheme}://{place}{says}" in said
    assert known or f"check {next(iter(env))} " in said
    assert not any(secret in failed.stdout + said for secret in (*env.values(), "of-the-test"))
