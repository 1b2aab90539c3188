"""Tests of the replacement of the Trainer's initializer images, with huggingface_hub and the loopback hub.

Object stores are in tests/integration/programs/export/test_round_trip.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainjob_local.demo.hub import HubServer

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv" / "initializer" / "bin" / "python"
IMAGES = ROOT / "laptop" / "src" / "trainjob_local" / "image_files"

Initialize = Callable[..., "subprocess.CompletedProcess[str]"]
DATASET = ("README.md", "data/train.parquet", "heldout/test.parquet")
MODEL = ("README.md", "config.json", "merges.txt", "model.safetensors", "original/tokenizer.model", "pytorch_model.bin")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    for repository, files in (
        ("datasets/demo/tickets", DATASET),
        ("models/demo/tiny", MODEL),
        ("models/demo/gated", MODEL),
        ("models/demo/other", MODEL),
        ("models/demo/pickled", ("pytorch_model.bin",)),
    ):
        for file in files:
            path = tmp_path / "hub" / repository / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{repository} {file}")
    tokens = {"demo/gated": "hf_right", "demo/other": "hf_other"}
    with HubServer(tmp_path / "hub", tokens=tokens) as server:
        yield server


@pytest.fixture
def initialize(tmp_path: Path, hub: HubServer) -> Initialize:
    def run(kind: str, **env: str) -> subprocess.CompletedProcess[str]:
        here = {"PYTHONPATH": str(IMAGES), "HOME": str(tmp_path), "WORKSPACE": str(tmp_path / "workspace")}
        return subprocess.run(
            [PYTHON, "-m", f"pkg.initializers.{kind}"],
            env={"PATH": os.environ["PATH"], "HF_ENDPOINT": hub.url, **here, **env},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def read_downloads(folder: Path) -> list[str]:
    """Return the files of a folder, without the library's cache."""
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(path.as_posix() for path in paths if path.parts[0] != ".cache")


@pytest.mark.parametrize("uri", ["hf://demo/tickets", "hf://demo/tickets/data", "hf://demo/tickets/data/deep"])
def test_a_dataset_is_the_whole_repository_even_if_a_folder_is_given(
    tmp_path: Path, initialize: Initialize, uri: str
) -> None:
    done = initialize("dataset", STORAGE_URI=uri)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_downloads(tmp_path / "workspace" / "dataset") == list(DATASET)
    assert (tmp_path / "workspace/dataset/data/train.parquet").read_text() == "datasets/demo/tickets data/train.parquet"


def test_ignored_files_are_not_downloaded(tmp_path: Path, initialize: Initialize) -> None:
    initialize("dataset", STORAGE_URI="hf://demo/tickets", IGNORE_PATTERNS="*.md, heldout/*,")
    assert read_downloads(tmp_path / "workspace" / "dataset") == ["data/train.parquet"]


def test_a_model_is_configuration_tokenizer_and_safetensors(tmp_path: Path, initialize: Initialize) -> None:
    assert initialize("model", STORAGE_URI="hf://demo/tiny").returncode == 0
    expected = ["config.json", "merges.txt", "model.safetensors", "original/tokenizer.model"]
    assert read_downloads(tmp_path / "workspace" / "model") == expected


def test_each_file_has_a_log_line(initialize: Initialize) -> None:
    first, *files, last = initialize("dataset", STORAGE_URI="hf://demo/tickets").stdout.splitlines()
    assert first.startswith("dataset initializer: 3 files, ")
    assert [line.split()[2] for line in files] == ["1/3", "2/3", "3/3"]
    assert last == "dataset initializer: done"


def test_a_private_model_can_be_downloaded_with_its_token(tmp_path: Path, initialize: Initialize) -> None:
    assert initialize("model", STORAGE_URI="hf://demo/gated", ACCESS_TOKEN="hf_right").returncode == 0
    assert initialize("model", STORAGE_URI="hf://demo/gated", HF_TOKEN="hf_right").returncode == 0


@pytest.mark.parametrize(
    ("kind", "env", "says"),
    [
        ("model", {}, "STORAGE_URI is not set"),
        ("model", {"STORAGE_URI": "demo/tiny"}, "has no scheme"),
        ("model", {"STORAGE_URI": "gs://demo/tiny"}, "supports only hf:// and s3://"),
        ("dataset", {"STORAGE_URI": "cache://schema/table"}, "supports only hf:// and s3://"),
        ("dataset", {"STORAGE_URI": "hf://demo"}, "names no repository"),
        ("model", {"STORAGE_URI": "hf://demo/tiny/folder"}, "names no repository"),
        ("model", {"STORAGE_URI": "hf://demo/none"}, "no model demo/none on the hub"),
        ("dataset", {"STORAGE_URI": "hf://demo/tiny"}, "no dataset demo/tiny on the hub"),
        ("model", {"STORAGE_URI": "hf://demo/gated"}, "no access to hf://demo/gated (HTTP 401)"),
        ("model", {"STORAGE_URI": "hf://demo/gated", "ACCESS_TOKEN": "hf_other"}, "(HTTP 403): request access"),
        ("model", {"STORAGE_URI": "hf://demo/gated", "ACCESS_TOKEN": "hf_wrong"}, "rejects this ACCESS_TOKEN"),
        ("model", {"STORAGE_URI": "hf://demo/pickled"}, "matches the patterns; its files: pytorch_model.bin"),
        ("model", {"STORAGE_URI": "hf://demo/tiny", "IGNORE_PATTERNS": "*"}, "matches the patterns"),
        ("model", {"STORAGE_URI": "hf://demo/tiny", "HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot be downloaded"),
    ],
)
def test_a_failure_is_one_sentence_and_exit_code_1(
    initialize: Initialize, kind: str, env: dict[str, str], says: str
) -> None:
    failed = initialize(kind, **env)
    assert (failed.returncode, failed.stdout) == (1, "")
    [sentence] = failed.stderr.splitlines()
    assert sentence.startswith(f"{kind} initializer: ")
    assert says in sentence
    assert env.get("ACCESS_TOKEN", "hf_none") not in sentence


def test_files_of_an_earlier_download_do_not_hide_an_error(initialize: Initialize) -> None:
    assert initialize("model", STORAGE_URI="hf://demo/tiny").returncode == 0
    assert initialize("model", STORAGE_URI="hf://demo/none").returncode == 1
