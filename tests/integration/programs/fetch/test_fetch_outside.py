"""Names and links that lead outside the folder are refused before anything changes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.integration.programs.fetch.conftest import EXPECTED_MODEL_FILES
from tests.integration.programs.fetch.fetch_results import failure_message, read_all_paths, read_contents, read_receipt
from tests.support.gcs_server import GcsServer
from tests.support.object_server import StoredObject
from tests.support.s3_server import S3Server
from trainjob.programs.fetch.names import broken_rule, first_conflict
from trainjob.programs.fetch.record import RECORD_FOLDER, RecordedFile, RecordWriter

MODEL = "hf://demo/tiny"
OUTSIDE_PATHS = [
    "../victim.json",
    "../../victim.json",
    "sub/../../victim.json",
    "{tmp_path}/victim.json",
    "..\\victim.json",
    "vic\0tim.json",
    "./config.json",
    "sub//victim.json",
    "line\nfetch: done {{}}.json",
    f"{RECORD_FOLDER}/record.jsonl.json",
    f"{RECORD_FOLDER.title()}/victim.json",
    "config.json/victim.json",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder that an earlier fetch filled, with foreign files above it."""
    found = tmp_path / "workspace" / "model"
    RecordWriter(found, MODEL, "0" * 40, [RecordedFile("stale.txt", 5, "m", "ab")]).finish()
    (found / "stale.txt").write_text("stale")
    for above in (tmp_path, found.parent):
        (above / "victim.json").write_text("mine")
    return found


def expected_rule(name: str) -> str:
    """Return the rule that the message has to contain."""
    return broken_rule(name, RECORD_FOLDER) or "is a file in the same list"


@pytest.mark.parametrize("name", OUTSIDE_PATHS)
def test_a_name_outside_the_folder_in_a_hubs_listing_is_refused(tmp_path, run_fetch, hub, folder, name):
    hub.handler_class.extra_files.append(name.format(tmp_path=tmp_path))
    before = read_all_paths(tmp_path)
    message = failure_message(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert read_all_paths(tmp_path) == before
    assert "model demo/tiny lists the file " in message
    assert expected_rule(name.format(tmp_path=tmp_path)) in message
    assert hub.list_sent_files() == []


@pytest.mark.parametrize("server", [S3Server, GcsServer], ids=["s3", "gs"])
@pytest.mark.parametrize(
    "name", ["../victim.json", "../../victim.json", "a\\b", "a/./b", f"{RECORD_FOLDER}/record.jsonl", "a.txt/b"]
)
def test_a_name_outside_the_folder_in_a_stores_listing_is_refused(tmp_path, run_fetch, folder, server, name):
    before = read_all_paths(tmp_path)
    with server() as store:
        for key in (name, "a.txt", "model.safetensors"):
            store.objects[f"models/v1/{key}"] = StoredObject(b"evil", {})
        message = failure_message(
            run_fetch("model", f"{store.scheme}://models/v1", ENDPOINT=store.url, **store.environment)
        )
        assert not any(key == "models/v1/a.txt" for _, key in store.requests)
    assert f"{store.scheme}://models/v1 lists the file " in message
    assert expected_rule(name) in message
    assert read_all_paths(tmp_path) == before


@pytest.mark.parametrize("name", ["../victim.json", "../../victim.json", "{tmp_path}/victim.json"])
def test_a_name_outside_the_folder_in_a_record_is_refused(tmp_path, run_fetch, hub, folder, name):
    line = json.dumps(asdict(RecordedFile(name.format(tmp_path=tmp_path), 4, "m", "ab")))
    with (folder / RECORD_FOLDER / "record.jsonl").open("a") as file:
        file.write(f"{line}\n")
    before = read_all_paths(tmp_path)
    message = failure_message(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert read_all_paths(tmp_path) == before
    assert f"{folder}/{RECORD_FOLDER}/record.jsonl lists the file " in message
    assert "remove this record" in message


@pytest.mark.parametrize("link", ["original", RECORD_FOLDER, f"{RECORD_FOLDER}/parts"])
def test_a_linked_folder_is_refused(tmp_path, run_fetch, hub, link):
    model, outside = tmp_path / "workspace" / "model", tmp_path / "outside"
    outside.mkdir()
    (model / link).parent.mkdir(parents=True, exist_ok=True)
    (model / link).symlink_to(outside)
    before = read_all_paths(tmp_path)
    message = failure_message(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert f"{model / link} is a symbolic link" in message
    assert "remove the link" in message
    assert not any(outside.iterdir())
    assert read_all_paths(tmp_path) == before


def test_a_folder_with_the_name_of_a_file_is_refused(tmp_path, run_fetch, hub):
    model = tmp_path / "workspace" / "model"
    (model / "config.json" / "own").mkdir(parents=True)
    message = failure_message(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert f"{model}/config.json is a folder, but the fetch writes a file of this name" in message
    assert "config.json" not in hub.list_sent_files()


@pytest.mark.parametrize("same", [False, True], ids=["another-content", "the-same-content"])
def test_a_linked_file_is_replaced(tmp_path, run_fetch, hub, same):
    model, outside = tmp_path / "workspace" / "model", tmp_path / "outside.json"
    content = (tmp_path / "hub/models/demo/tiny/config.json").read_text()
    outside.write_text(content if same else content.upper())
    model.mkdir(parents=True)
    (model / "config.json").symlink_to(outside)
    assert read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))["fetched"] == len(EXPECTED_MODEL_FILES)
    assert outside.read_text() == (content if same else content.upper())
    assert (model / "config.json").read_text() == content
    assert not (model / "config.json").is_symlink()


@pytest.mark.parametrize("link", ["record.jsonl", "record.new"])
def test_a_linked_record_is_replaced(tmp_path, run_fetch, hub, link):
    model, outside = tmp_path / "workspace" / "model", tmp_path / "outside"
    outside.write_text("mine")
    (model / RECORD_FOLDER).mkdir(parents=True)
    (model / RECORD_FOLDER / link).symlink_to(outside)
    read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))
    assert outside.read_text() == "mine"
    assert not (model / RECORD_FOLDER / "record.jsonl").is_symlink()


def test_the_folder_itself_may_be_a_link(tmp_path, run_fetch, hub):
    (tmp_path / "volume").mkdir()
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "model").symlink_to(tmp_path / "volume")
    assert read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))["fetched"] == len(EXPECTED_MODEL_FILES)
    assert "config.json" in read_contents(tmp_path / "volume")


def test_a_file_may_become_a_folder_and_a_folder_a_file(tmp_path, run_fetch, hub):
    repository = tmp_path / "hub/datasets/demo/tickets"
    read_receipt(run_fetch("dataset", "hf://demo/tickets", HF_ENDPOINT=hub.url))
    (repository / "data/train.parquet").unlink()
    (repository / "data").rmdir()
    (repository / "data").write_text("now a file")
    (repository / "README.md").unlink()
    (repository / "README.md").mkdir()
    (repository / "README.md/en").write_text("now a folder")
    read_receipt(run_fetch("dataset", "hf://demo/tickets", HF_ENDPOINT=hub.url))
    assert read_contents(tmp_path / "workspace/dataset") == read_contents(repository)


COMPONENTS = st.sampled_from(
    ["a", "..", ".", "", RECORD_FOLDER, "é", " ", "\\", "\0", "\u2028", "\ud800", "C:", "~", "$HOME"]
)


@given(st.text(max_size=20) | st.lists(COMPONENTS | st.text(max_size=3), max_size=5).map("/".join))
@example("a" * 300)
def test_a_name_that_breaks_no_rule_stays_in_the_folder_on_one_line(name):
    if broken_rule(name, RECORD_FOLDER):
        return
    root = Path("/root/folder")
    path = root / name
    assert os.path.normpath(path) == str(path)
    assert root in path.parents
    assert path.relative_to(root).as_posix() == name
    assert path.relative_to(root).parts[0] != RECORD_FOLDER
    assert len(f"fetch: {name}".splitlines()) == 1
    assert os.fsencode(name).decode("utf-8") == name


@pytest.mark.parametrize(
    "name", ["config.json", "data/train-00000-of-00001.parquet", "a b/ü.txt", "...", "a..b/.x", "~"]
)
def test_usual_names_break_no_rule(name):
    assert broken_rule(name, RECORD_FOLDER) == ""


@pytest.mark.parametrize(
    ("names", "conflict"),
    [
        (["a", "b/c", "b.d", "b-"], None),
        (["a", "a-", "a/b"], ("a", "a/b")),
        (["x", "a/b/c", "a/b"], ("a/b", "a/b/c")),
        (["a", "a"], ("a", "a")),
    ],
)
def test_a_name_cannot_be_a_file_and_a_folder(names, conflict):
    assert first_conflict(names) == conflict
