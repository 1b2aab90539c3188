"""Trainings in folders of this machine, with the demo's tiny model and its tickets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.demo_chain import make_demo_hub
from trainjob import FineTune, RunKey, TorchTuneConfig, WorkspaceVolume, submit, wait
from trainjob.lifecycle import Listener


@pytest.fixture(scope="session")
def hub(tmp_path_factory):
    """Return a folder with the tiny model and the tickets, as the demo's hub has them."""
    folder = tmp_path_factory.mktemp("hub")
    make_demo_hub(folder)
    return folder


@pytest.fixture
def cpu_for_gpus():
    """Return the environment of a training that uses a CPU instead of GPUs."""
    return {"PYTHONPATH": str(Path(__file__).parent / "as_on_gpus")}


@pytest.fixture
def workspace(hub, tmp_path):
    """Return a folder with `model` and `dataset`, for use as a workspace."""
    folder = tmp_path / "workspace"
    shutil.copytree(hub / "models" / "demo" / "tiny-llama", folder / "model")
    shutil.copytree(hub / "datasets" / "demo" / "tickets", folder / "dataset")
    return folder


@pytest.fixture
def run_training(cluster, unique, workspace, torchrun_lock) -> Callable[..., tuple[object, list[str]]]:
    """Return a function that runs a training and returns its outcome and its log."""

    def run(name: str, config: TorchTuneConfig, *, model: str = "llama3.2-1b", **fields):
        lines: list[str] = []
        step = FineTune(
            model=model,
            workspace=WorkspaceVolume(node_path=str(workspace)),
            config=config,
            output_path=name,
            **fields,
        )
        reference = submit(cluster, step, RunKey("test", "torchtune", unique, name))
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
        return outcome, lines

    return run
