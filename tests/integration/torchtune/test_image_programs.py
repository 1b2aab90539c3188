"""A chain whose programs are in the images of its steps gives the same files as one with packed programs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.integration.torchtune.tiny_trainings import tiny_config
from tests.support.program_images import REGISTRY, create_program_images
from trainjob import (
    CommandFailed,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    RunKey,
    WorkspaceVolume,
    submit,
    wait,
)
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import Listener
from trainjob.local import LocalCluster
from trainjob.status import Category
from trainjob_local.demo.hub import HubServer

pytestmark = [pytest.mark.torchtune, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENTS = {name: ROOT / ".venv" / name for name in ("torchtune", "initializer")}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Yield a client of a laptop cluster whose images contain `trainjob`."""
    images = create_program_images(tmp_path_factory.mktemp("site-packages"))
    with LocalCluster(environments=ENVIRONMENTS, images=images) as laptop:
        opened = Cluster(Connection(kubeconfig=str(laptop.kubeconfig)), retry_seconds=5.0)
        yield opened
        opened.close()


@pytest.fixture
def run_step(cluster, unique):
    """Return a function that runs a step, and returns its outcome, log and command."""

    def run(name, step):
        lines = []
        reference = submit(cluster, step, RunKey("test", "image", unique, name))
        trainer = cluster.get_trainjob(reference.name, reference.namespace)["spec"]["trainer"]
        outcome = wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(line.text)))
        return outcome, lines, trainer["command"]

    return run


def build_chain(folder, hub_url, program):
    """Return the steps of a chain by name; the images contain the programs."""
    images = {"program": program, "workspace": WorkspaceVolume(node_path=str(folder))}
    steps = {**images, "image": f"{REGISTRY}/initializer:1"}
    config = tiny_config(epochs=2, max_steps_per_epoch=3, seed=7)
    return {
        "dataset": InitializeDataset(storage_uri="hf://demo/tickets", endpoint=hub_url, **steps),
        "model": InitializeModel(storage_uri="hf://demo/tiny-llama", endpoint=hub_url, ignore_patterns=(), **steps),
        "tune": FineTune(model="llama3.2-1b", config=config, image=f"{REGISTRY}/torchtune:1", **images),
        "export": ExportModel(destination="/workspace/export", any_run=True, **steps),  # each step has its own run
    }


def read_digests(folder):
    files = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name not in ("manifest.json", "README.md")
    )
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_a_chain_gives_the_same_files_with_both_kinds_of_programs(run_step, hub, tmp_path, torchrun_lock):
    found = {}
    with HubServer(hub) as server:
        for program, option in (("packed", "-c"), ("image", "-m")):
            folder = tmp_path / program
            folder.mkdir()
            for name, step in build_chain(folder, server.url, program).items():
                outcome, lines, command = run_step(f"{program}-{name}", step)
                assert outcome.succeeded, lines
                assert command[:2] == ["python", option]
                assert max(map(len, command)) < 60 or program == "packed"
            found[program] = read_digests(folder / "export")
    assert found["packed"] == found["image"]
    assert {"config.json", "model.safetensors.index.json"} & found["image"].keys()


def test_a_retry_with_another_program_adopts_the_trainjob(cluster, hub, tmp_path, unique):
    key = RunKey("test", "image", unique, "retry")
    with HubServer(hub) as server:
        packed, image = (build_chain(tmp_path, server.url, program)["model"] for program in ("packed", "image"))
        created = submit(cluster, packed, key)
        adopted = submit(cluster, image, key)
        assert (adopted.uid, adopted.adopted) == (created.uid, True)
        assert wait(cluster, adopted).succeeded


def test_an_image_without_trainjob_is_reported_with_a_hint(run_step, tmp_path):
    step = InitializeModel(
        storage_uri="hf://demo/tiny-llama",
        workspace=WorkspaceVolume(node_path=str(tmp_path)),
        image=f"{REGISTRY}/plain:1",
        program="image",
    )
    outcome, lines, _ = run_step("plain", step)
    assert (outcome.category, outcome.retryable) == (Category.PROGRAM, False), lines
    with pytest.raises(CommandFailed, match="give an image with the version of trainjob that the command names"):
        outcome.raise_for_failure()
