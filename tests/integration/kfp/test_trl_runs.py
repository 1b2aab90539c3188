"""Tests of real trainings with the component `fine_tune`, `kfp.local` and the laptop cluster."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import pytest

from tests.integration.kfp.pipeline_runner import PipelineRunner
from tests.support.demo_chain import ALL_ENVIRONMENTS, make_demo_hub
from trainjob_local import LocalCluster

ROOT = Path(__file__).resolve().parents[3]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.trl,
    pytest.mark.usefixtures("torchrun_lock"),
]


@pytest.fixture(scope="module")
def trl_laptop(tmp_path_factory):
    """Yield a laptop cluster on which images of the name `trl` run in `.venv/trl`."""
    with LocalCluster(tmp_path_factory.mktemp("cluster"), environments=ALL_ENVIRONMENTS) as started:
        yield started


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Return a folder with the demo's model and tickets."""
    folder = tmp_path_factory.mktemp("hub")
    make_demo_hub(folder)
    return folder


@pytest.fixture
def tickets(hub, tmp_path):
    """Return a folder with `model` and `dataset`, for use as a workspace."""
    folder = tmp_path / "tickets"
    shutil.copytree(hub / "models" / "demo" / "tiny-llama", folder / "model")
    shutil.copytree(hub / "datasets" / "demo" / "tickets", folder / "dataset")
    return folder


@pytest.fixture
def train(trl_laptop, tmp_path, unique, tickets):
    """Return a function that runs a pipeline.

    It returns the metrics and the page with the curve.
    """

    def run(name):
        code, log = PipelineRunner(trl_laptop, tmp_path, unique)(name, workspace=tickets)
        assert code == 0, log
        [metadata] = re.findall(r"metadata=(\{[^}]*'seconds'[^}]*\})", log)
        [page] = (tmp_path / "outputs").rglob("loss_curve*")
        return ast.literal_eval(metadata), page.read_text("utf-8")

    return run


def read_record(folder):
    return json.loads((folder / "trainjob_run.json").read_text())


def test_supervised_fine_tuning(train, tickets):
    """An epoch of 340 tickets with batches of 8 has 43 steps."""
    metrics, page = train("trl_sft")
    assert (metrics["steps"], metrics["epochs"]) == (43, 1)
    assert metrics["loss"] < 1.0 < 3.0 < metrics["first_loss"]
    assert 0 < metrics["eval_loss"] < 1.0
    assert metrics["seconds"] > 0
    assert f"<p>Loss {metrics['first_loss']:.4g} at step 4, {metrics['loss']:.4g} at step" in page
    assert f"<p>Evaluation loss (dashed) {metrics['eval_loss']:.4g} at step 43" in page
    record = read_record(tickets / "output")
    assert (record["method"], record["model"], record["complete"]) == ("sft", "tiny-llama", True)
    assert (tickets / "output" / "model.safetensors").is_file()


def test_direct_preference_optimization_with_lora(train, tickets):
    metrics, page = train("trl_dpo")
    assert metrics["steps"] == 6
    assert metrics["loss"] < metrics["first_loss"]
    assert metrics["rewards_margins"] > 0
    assert f"<p>Loss {metrics['first_loss']:.4g} at step 2, {metrics['loss']:.4g} at step 6" in page
    output = tickets / "output" / "preferences"
    assert json.loads((output / "adapter_config.json").read_text())["r"] == 4
    assert (output / "merged" / "model.safetensors").is_file()
    assert read_record(output)["parameters"]["beta"] == 0.1


def test_rewards_of_a_python_function(train):
    metrics, page = train("trl_grpo")
    assert metrics["steps"] == 6
    assert metrics["reward"] == metrics["rewards_count_letters_mean"] > 0
    assert f"{metrics['reward']:.4g} at step 6; highest reward" in page
