"""A training whose program is in the image gives the same model as one with a packed program."""

from __future__ import annotations

import pytest

from tests.integration.llamafactory import tiny_llamafactory
from tests.integration.trl import tiny_trl
from tests.support.demo_chain import ALL_ENVIRONMENTS
from tests.support.program_images import REGISTRY, create_program_images
from trainjob import FineTune, RunKey, WorkspaceVolume, submit, wait
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import Listener
from trainjob.local import LocalCluster

pytestmark = [pytest.mark.trl, pytest.mark.slow]


@pytest.fixture
def cluster(tmp_path):
    """Yield a client of a laptop cluster whose images contain `trainjob`."""
    images = create_program_images(tmp_path / "site-packages")
    with LocalCluster(environments=ALL_ENVIRONMENTS, images=images) as laptop:
        opened = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=5.0)
        yield opened
        opened.close()


@pytest.mark.parametrize(
    "config",
    [
        tiny_trl.tiny_config(max_steps=4),
        pytest.param(tiny_llamafactory.tiny_config(max_steps=4), marks=pytest.mark.llamafactory),
    ],
    ids=lambda config: config.framework,
)
def test_a_training_gives_the_same_model_with_both_kinds_of_programs(cluster, workspace, unique, config):
    weights = []
    for program in ("packed", "image"):
        step = FineTune(
            model="tiny-llama",
            workspace=WorkspaceVolume(node_path=str(workspace)),
            config=config,
            output_path=program,
            image=f"{REGISTRY}/{config.framework}:1",
            program=program,
        )
        lines = []
        reference = submit(cluster, step, RunKey("test", "trl", unique, program))
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line, lines=lines: lines.append(line.text)))
        assert outcome.succeeded, lines
        output = workspace / "output" / program
        weights.append((output / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
