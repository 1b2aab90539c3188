"""Trainings on the laptop cluster, with the demo's tiny model and its tickets.

A conftest imports these fixtures, and defines the fixture `training_image`: the name of the trainings' image.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.demo_chain import make_demo_hub
from trainjob import Cluster, FineTune, JobReference, Outcome, RunKey, WorkspaceVolume, submit, wait
from trainjob.errors import Diverged
from trainjob.lifecycle import Listener
from trainjob.spec import FrameworkConfig
from trainjob.status import Category

ROOT = Path(__file__).resolve().parents[2]
__all__ = ["check_divergence", "environments", "hub", "run_training", "submit_training", "workspace"]


def check_divergence(outcome: Outcome, lines: list[str], output: Path) -> None:
    """Check that a training in a folder failed because its loss is no finite number."""
    assert outcome.category is Category.DIVERGED, lines[-20:]
    with pytest.raises(Diverged) as raised:
        outcome.raise_for_failure()
    assert not raised.value.retryable
    assert [line for line in lines if "'loss': 'nan'" in line]  # not 0
    assert any("the training diverged: loss nan" in line for line in lines)
    assert not (output / "model.safetensors").exists()


def environments(name: str) -> dict[str, Path]:
    """Return the environments for a laptop cluster that trains in one of them.

    The image NAME-next is another name of the same environment.
    """
    known = {each: ROOT / ".venv" / each for each in ("torchtune", "initializer", name)}
    return {**known, f"{name}-next": known[name]}


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the tiny model and the tickets, as the demo's hub has them."""
    folder = tmp_path_factory.mktemp("hub")
    make_demo_hub(folder)
    return folder


@pytest.fixture
def workspace(hub: Path, tmp_path: Path) -> Path:
    """Return a folder with `model` and `dataset`, for use as a workspace."""
    folder = tmp_path / "workspace"
    shutil.copytree(hub / "models" / "demo" / "tiny-llama", folder / "model")
    shutil.copytree(hub / "datasets" / "demo" / "tickets", folder / "dataset")
    return folder


@pytest.fixture
def submit_training(cluster: Cluster, unique: str, workspace: Path, training_image: str) -> Callable[..., JobReference]:
    """Return a function that submits a training, and returns the reference to its TrainJob.

    A training on one node takes a free port. Tests with several nodes hold the lock for the Trainer's port.
    """

    def start(name: str, config: FrameworkConfig, **fields: Any) -> JobReference:
        step = FineTune(
            workspace=WorkspaceVolume(node_path=str(workspace)),
            config=config,
            output_path=name,
            **{"model": "tiny-llama", "image": training_image, **fields},
        )
        return submit(cluster, step, RunKey("test", training_image, unique, name))

    return start


@pytest.fixture
def run_training(
    cluster: Cluster, submit_training: Callable[..., JobReference]
) -> Callable[..., tuple[Outcome, list[str]]]:
    """Return a function that runs a training, and returns its outcome and its log."""

    def run(name: str, config: FrameworkConfig, **fields: Any) -> tuple[Outcome, list[str]]:
        lines: list[str] = []
        reference = submit_training(name, config, **fields)
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
        return outcome, lines

    return run
