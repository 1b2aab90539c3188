"""Evaluations with the demo's tiny model: one with random weights, and a trained one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.training_fixtures import environments, hub

__all__ = ["hub"]
ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / ".venv" / "lm_eval" / "bin" / "python"
_TASK = """\
task: {name}
dataset_path: parquet
dataset_kwargs: {{data_files: {{test: dataset/heldout/*.parquet}}}}
test_split: test
doc_to_text: "{{{{input}}}}"
doc_to_target: "{{{{output}}}}"
output_type: {kind}
metric_list:
{metrics}
"""
_CHOICES = ", ".join(f"Route to {team}." for team in ("account", "billing", "delivery", "hardware", "network"))
TASKS = {
    "tickets": _TASK.format(
        name="tickets",
        kind="generate_until",
        metrics="  - {metric: exact_match, aggregation: mean, higher_is_better: true}\n"
        'generation_kwargs: {until: ["<|eot_id|>"], max_gen_toks: 16, do_sample: false}',
    ),
    "tickets_choice": _TASK.format(
        name="tickets_choice",
        kind="multiple_choice",
        metrics=f"  - {{metric: acc}}\ndoc_to_choice: [{_CHOICES}]",
    ),
    "tickets_loss": _TASK.replace("{{{{input}}}}", "").format(
        name="tickets_loss",
        kind="loglikelihood_rolling",
        metrics="  - metric: bits_per_byte",
    ),
}


@pytest.fixture(scope="session")
def trainjob_cluster_options():
    """Return the laptop cluster's arguments, with the environment of the harness."""
    return {"environments": environments("lm_eval")}


@pytest.fixture(scope="session")
def trained(hub, tmp_path_factory):
    """Return the folder of the tiny model after a training on the tickets."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    program = Path(__file__).with_name("train_tiny.py")
    base, rows = hub / "models/demo/tiny-llama", hub / "datasets/demo/tickets/data"
    subprocess.run([PYTHON, program, base, rows, folder], check=True)
    return folder


@pytest.fixture
def workspace(hub, trained, tmp_path):
    """Return a workspace with the two models, the tickets and task files."""
    folder = tmp_path / "workspace"
    shutil.copytree(hub / "datasets/demo/tickets", folder / "dataset")
    shutil.copytree(trained, folder / "better")
    shutil.copytree(hub / "models/demo/tiny-llama", folder / "worse")
    (folder / "tasks").mkdir()
    for name, text in TASKS.items():
        (folder / "tasks" / f"{name}.yaml").write_text(text)
    return folder
