"""Trainings of a tiny encoder on the laptop cluster, with the package of examples/frameworks/sentence_transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.sentence_transformers.rows import TEXTS, build_rows, write_rows
from tests.support.framework_packages import forget_frameworks, install_package
from tests.support.training_fixtures import ROOT, environments, run_training, submit_training
from trainjob import Cluster, ExportModel, RunKey, WorkspaceVolume, submit, wait
from trainjob.lifecycle import Listener

__all__ = ["run_training", "submit_training"]

PACKAGE = ROOT / "examples" / "frameworks" / "sentence_transformers"
PYTHON = ROOT / ".venv" / "sentence_transformers" / "bin" / "python"


@pytest.fixture(scope="session")
def trainjob_cluster_options():
    """Return the laptop cluster's arguments, with the environment of sentence-transformers."""
    return {"environments": environments("sentence_transformers")}


@pytest.fixture(scope="session")
def training_image():
    return "sentence_transformers"


@pytest.fixture(scope="session")
def package_folder(tmp_path_factory):
    """Return the folder in which the package is installed."""
    return install_package(PACKAGE, tmp_path_factory.mktemp("packages"))


@pytest.fixture(autouse=True)
def package(package_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the package to this process during a test."""
    monkeypatch.syspath_prepend(str(package_folder))
    forget_frameworks()
    yield
    forget_frameworks()
    for name in [name for name in sys.modules if name.partition(".")[0] == "trainjob_sentence_transformers"]:
        monkeypatch.delitem(sys.modules, name)


def run_program(name: str, *arguments: object) -> str:
    """Run a program beside this file in the environment, and return its output."""
    command = [str(PYTHON), "-W", "ignore", str(Path(__file__).with_name(name)), *map(str, arguments)]
    done = subprocess.run(command, input="\n".join(TEXTS), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def encoders(tmp_path_factory):
    """Return a folder with the tiny encoder in each form."""
    folder = tmp_path_factory.mktemp("encoders")
    run_program("tiny_encoder.py", folder)
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a folder with rows for each kind of loss, for use as a workspace."""
    for columns in ("pairs", "triplets", "scored", "labeled"):
        write_rows(tmp_path / "workspace" / "dataset" / columns / "train.jsonl", build_rows(columns))
    return tmp_path / "workspace"


@pytest.fixture
def embed() -> Callable[..., dict[str, Any]]:
    """Return a function that loads models, and returns their embeddings of the texts."""

    def run(*folders: Path) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run_program("embeddings.py", *folders).splitlines()[-1])
        return {Path(folder).name: values for folder, values in found.items()}

    return run


@pytest.fixture
def export_model(cluster: Cluster, unique: str, workspace: Path) -> Callable[[str], list[str]]:
    """Return a function that exports the model of an output folder, and returns the log."""

    def run(name: str) -> list[str]:
        lines: list[str] = []
        step = ExportModel(
            workspace=WorkspaceVolume(node_path=str(workspace)),
            output_path=name,
            destination="/workspace/export",
            any_run=True,
        )
        reference = submit(cluster, step, RunKey("test", "export", unique, name))
        wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text))).raise_for_failure()
        return lines

    return run
