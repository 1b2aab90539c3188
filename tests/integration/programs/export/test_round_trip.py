"""Exported models, downloaded again by the laptop cluster's initializers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.programs.export.export_program import PYTHON, ROOT, RunExport, export_environment
from tests.integration.programs.export.hub_uploads import Uploads, upload_hub
from tests.support.export_runs import read_tree
from tests.support.s3_server import S3Server, StoredObject

IMAGES = ROOT / "laptop" / "src" / "trainjob_local" / "image_files"
Initialize = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def store() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def initialize(tmp_path: Path) -> Initialize:
    def run(kind: str, **env: str) -> subprocess.CompletedProcess[str]:
        paths = {"PYTHONPATH": str(IMAGES), "WORKSPACE": str(tmp_path / "next")}
        return subprocess.run(
            [PYTHON, "-m", f"pkg.initializers.{kind}"],
            env={**export_environment(tmp_path), **paths, **env},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def test_a_model_exported_to_an_object_store_is_downloaded_unchanged(
    tmp_path: Path,
    workspace: Path,
    run_export: RunExport,
    initialize: Initialize,
    store: S3Server,
    evidence: Callable[..., None],
) -> None:
    run_export(workspace / "export")
    run_export("s3://models/v1", "--endpoint", store.url, **store.environment)
    done = initialize("model", STORAGE_URI="s3://models/v1/", ENDPOINT=store.url, **store.environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert read_tree(tmp_path / "next" / "model") == read_tree(workspace / "export")
    for row in ("S3 initializer", "export"):
        evidence("features", row=row, cell="real run")


def test_a_model_exported_to_the_hub_is_downloaded_unchanged(
    tmp_path: Path, workspace: Path, run_export: RunExport, initialize: Initialize
) -> None:
    run_export(workspace / "export")
    (tmp_path / "hub" / "models").mkdir(parents=True)
    with upload_hub(tmp_path / "hub", Uploads("hf_token")) as hub:
        run_export("hf://org/name", ACCESS_TOKEN="hf_token", HF_ENDPOINT=hub.url)
        done = initialize("model", STORAGE_URI="hf://org/name", HF_ENDPOINT=hub.url)
    assert (done.returncode, done.stderr) == (0, "")
    found = {
        name: content for name, content in read_tree(tmp_path / "next/model").items() if not name.startswith(".cache")
    }
    exported = read_tree(workspace / "export")
    assert exported.pop("README.md")  # the initializer does not download model cards
    assert found == exported


def test_files_are_named_without_the_prefix_and_patterns_match_whole_keys(
    tmp_path: Path, initialize: Initialize, store: S3Server
) -> None:
    for key in ("data/train.parquet", "data/deep/b.parquet", "data/notes.txt", "database/x", "other"):
        store.objects[f"models/{key}"] = StoredObject(key.encode(), {})
    env = {"ENDPOINT": store.url, "IGNORE_PATTERNS": "data/*.txt", **store.environment}
    assert initialize("dataset", STORAGE_URI="s3://models/data", **env).returncode == 0
    assert read_tree(tmp_path / "next" / "dataset") == {
        "train.parquet": b"data/train.parquet",
        "deep/b.parquet": b"data/deep/b.parquet",
        "base/x": b"database/x",  # the prefix is not a folder; the Trainer's program has the same behavior
    }


def test_a_prefix_that_is_a_key_downloads_one_file(tmp_path: Path, initialize: Initialize, store: S3Server) -> None:
    store.objects["models/data/train.parquet"] = StoredObject(b"rows", {})
    env = {"ENDPOINT": store.url, **store.environment}
    assert initialize("dataset", STORAGE_URI="s3://models/data/train.parquet", **env).returncode == 0
    assert read_tree(tmp_path / "next" / "dataset") == {"train.parquet": b"rows"}


@pytest.mark.parametrize(
    ("uri", "key", "message"),
    [
        (
            "s3://models/none",
            "access-key-of-the-test",
            "no object of s3://models/none matches the patterns; its objects: none",
        ),
        ("s3://nowhere/none", "access-key-of-the-test", "no bucket nowhere"),
        ("s3://models/none", "another-key", "no access to s3://models/none"),
    ],
)
def test_a_failure_is_reported_in_one_sentence(
    initialize: Initialize, store: S3Server, uri: str, key: str, message: str
) -> None:
    env = {"ENDPOINT": store.url, **store.environment, "ACCESS_KEY_ID": key}
    failed = initialize("model", STORAGE_URI=uri, **env)
    assert (failed.returncode, failed.stdout, len(failed.stderr.splitlines())) == (1, "", 1)
    assert message in failed.stderr
    assert key not in failed.stderr
