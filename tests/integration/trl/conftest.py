"""TRL trainings on the laptop cluster, with the demo's tiny model and its tickets."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.demo_chain import make_demo_hub
from trainjob import FineTune, RunKey, TRLConfig, Workspace, submit, wait
from trainjob.lifecycle import Listener

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def trainjob_cluster_options():
    """Return the arguments of the laptop cluster: images of the name `trl` run in `.venv/trl`."""
    return {"environments": {name: ROOT / ".venv" / name for name in ("torchtune", "initializer", "trl")}}


@pytest.fixture(scope="session")
def hub(tmp_path_factory):
    """Return a folder with the tiny model and the tickets, as the demo's hub has them."""
    folder = tmp_path_factory.mktemp("hub")
    make_demo_hub(folder)
    return folder


@pytest.fixture
def workspace(hub, tmp_path):
    """Return a folder with `model` and `dataset`, for use as a workspace."""
    folder = tmp_path / "workspace"
    shutil.copytree(hub / "models" / "demo" / "tiny-llama", folder / "model")
    shutil.copytree(hub / "datasets" / "demo" / "tickets", folder / "dataset")
    return folder


@pytest.fixture
def submit_training(cluster, unique, workspace) -> Callable[..., object]:
    """Return a function that submits a training, and returns the reference to its TrainJob.

    A training on one node takes a free port. Tests with several nodes hold the lock for the Trainer's port.
    """

    def start(name: str, config: TRLConfig, **fields):
        step = FineTune(
            model="tiny-llama",
            workspace=Workspace(node_path=str(workspace)),
            config=config,
            output_path=name,
            image="trl",
            **fields,
        )
        return submit(cluster, step, RunKey("test", "trl", unique, name))

    return start


@pytest.fixture
def run_training(cluster, submit_training) -> Callable[..., tuple[object, list[str]]]:
    """Return a function that runs a training, and returns its outcome and its log."""

    def run(name: str, config: TRLConfig, **fields):
        lines: list[str] = []
        reference = submit_training(name, config, **fields)
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
        return outcome, lines

    return run
