"""A training with TRL whose program is in the image gives the same model as one with a packed program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.trl.tiny_trl import tiny_config
from tests.support.program_images import REGISTRY, create_program_images
from trainjob import FineTune, RunKey, Workspace, submit, wait
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import Listener
from trainjob.local import LocalCluster

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def cluster(tmp_path):
    """Yield a client of a laptop cluster whose images contain `trainjob`."""
    images = create_program_images(tmp_path / "site-packages")
    with LocalCluster(environments={"trl": ROOT / ".venv" / "trl"}, images=images) as laptop:
        opened = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=5.0)
        yield opened
        opened.close()


def test_a_training_gives_the_same_model_with_both_kinds_of_programs(cluster, workspace, unique):
    weights = []
    for program in ("packed", "image"):
        step = FineTune(
            model="tiny-llama",
            workspace=Workspace(node_path=str(workspace)),
            config=tiny_config(max_steps=4),
            output_path=program,
            image=f"{REGISTRY}/trl:1",
            program=program,
        )
        lines = []
        reference = submit(cluster, step, RunKey("test", "trl", unique, program))
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line, lines=lines: lines.append(line.text)))
        assert outcome.succeeded, lines
        output = workspace / "output" / program
        weights.append((output / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
