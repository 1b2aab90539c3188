"""Fetches into folders that an earlier version filled with `hf_hub_download(local_dir=...)`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.programs.fetch.conftest import EXPECTED_MODEL_FILES
from tests.integration.programs.fetch.fetch_results import read_all_paths, read_contents, read_receipt
from tests.support.object_server import StoredObject
from tests.support.s3_server import S3Server

MODEL = "hf://demo/tiny"
COMMIT = "b0dcf92b70ec8c2ee5aa6ac56dd2be4deaf2fea4"
# The record that the earlier version wrote for the repository of the fixture `hub`.
RECORD = f"""\
{{"format": "trainjob-fetch", "version": 1, "uri": "hf://demo/tiny", "revision": "{COMMIT}"}}
{{"path": "config.json", "size": 28, "mark": "5da0286d0d479f116030116938b2583a9c3e4112", \
"sha256": "984b08ecb0f9e4745a229f316ebbf0cd636803d6d01868c36aa267d435d55c8b"}}
{{"path": "model.safetensors", "size": 34, "mark": "40786b81745f01a5e143c897f6961cf5d42285d3c1a41af8e6db4544b5b8af3f", \
"sha256": "40786b81745f01a5e143c897f6961cf5d42285d3c1a41af8e6db4544b5b8af3f"}}
{{"path": "original/tokenizer.model", "size": 41, "mark": "e02510067809a9657bd9defc49b1e247718ca0b9", \
"sha256": "8bf64ab44139e7393056096f3fc120e4d632c500fd15a0ceeb6b4718b8360ab9"}}
{{"whole": true}}
"""
LIBRARY = {
    ".gitignore": "*",
    "download/config.json.lock": "",
    "download/config.json.metadata": f"{COMMIT}\n5da0286d0d479f116030116938b2583a9c3e4112\n1.5\n",
    "download/0KDCuPKEBbUEPI9p0yNHWPgGOE8=.40786b81.0a1b2c3d.incomplete": "models/demo",
}


def write_earlier_fetch(folder: Path, record: str, *names: str) -> None:
    texts = {name: f"models/demo/tiny {name}" for name in names}
    texts |= {f".cache/huggingface/{name}": text for name, text in LIBRARY.items()}
    for name, text in {**texts, ".trainjob-fetch/record.jsonl": record}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tmp_path / "workspace" / "model"


def test_a_complete_folder_is_not_changed(run_fetch, hub, model):
    write_earlier_fetch(model, RECORD, "config.json", "model.safetensors", "original/tokenizer.model")
    before = read_all_paths(model)
    done = run_fetch("model", MODEL, HF_ENDPOINT=hub.url, IGNORE_PATTERNS="*.md,*.bin")
    assert read_receipt(done) == {"uri": MODEL, "revision": COMMIT, "files": 3, "bytes": 103, "fetched": 0}
    assert "fetch: all files are in the folder already" in done.stdout
    assert hub.list_sent_files() == []
    assert read_all_paths(model) == before


def test_an_incomplete_folder_keeps_its_files(run_fetch, hub, model):
    """One file is recorded, one was fetched but not yet recorded before the kill, and one is missing."""
    head, first, *_ = RECORD.splitlines(keepends=True)
    write_earlier_fetch(model, head + first + first[:20], "config.json", "original/tokenizer.model")
    assert read_receipt(run_fetch("model", MODEL, HF_ENDPOINT=hub.url))["fetched"] == 2
    assert hub.list_sent_files() == ["README.md", "model.safetensors"]
    assert sorted(read_contents(model)) == EXPECTED_MODEL_FILES


def test_parts_of_an_earlier_version_are_removed(tmp_path, run_fetch):
    with S3Server() as store:
        store.objects["models/v1/weights.bin"] = StoredObject(b"0123456789", {})
        parts = tmp_path / "workspace/dataset/.trainjob-fetch/parts"
        parts.mkdir(parents=True)
        (parts / "0123").write_bytes(b"01234")
        read_receipt(run_fetch("dataset", "s3://models/v1", ENDPOINT=store.url, **store.environment))
    assert read_contents(tmp_path / "workspace/dataset") == {"weights.bin": b"0123456789"}
    assert not parts.exists()
