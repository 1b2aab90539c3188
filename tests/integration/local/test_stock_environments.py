"""The stock environments from the locks in the wheel, without any option: real packages, real pods."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.code_blocks import python_blocks
from trainjob import Connection, InitializeDataset, RunKey, connect, submit, wait
from trainjob.spec import WorkspaceVolume
from trainjob_local import LocalCluster
from trainjob_local.demo.hub import HubServer
from trainjob_local.environments import list_environments

pytestmark = pytest.mark.slow


@pytest.fixture
def laptop_without_options(tmp_path, monkeypatch):
    """Return a function that builds a cluster with an empty cache of environments.

    uv keeps its own cache, so that packages are downloaded once on each machine.
    """
    uv_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uv"
    monkeypatch.setenv("UV_CACHE_DIR", os.environ.get("UV_CACHE_DIR", str(uv_cache)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return lambda **options: LocalCluster(tmp_path / "state", **options)


def test_a_fetch_creates_the_environment_of_the_initializers(laptop_without_options, tmp_path):
    rows = tmp_path / "hub/datasets/demo/tickets/data/rows.parquet"
    rows.parent.mkdir(parents=True)
    rows.write_bytes(b"rows")
    with (
        HubServer(tmp_path / "hub") as hub,
        laptop_without_options(pod_env={"HF_ENDPOINT": hub.url}) as laptop,
    ):
        cluster = connect(Connection(kubeconfig=str(laptop.kubeconfig)))
        (tmp_path / "workspace").mkdir()
        step = InitializeDataset(
            storage_uri="hf://demo/tickets", workspace=WorkspaceVolume(node_path=str(tmp_path / "workspace"))
        )
        outcome = wait(cluster, submit(cluster, step, RunKey("tests", "stock", "fetch", "run-1")))
        cluster.close()
    assert outcome.succeeded, outcome.explain()
    assert (tmp_path / "workspace/dataset/data/rows.parquet").read_bytes() == b"rows"
    assert [(one.name, one.ready) for one in list_environments()] == [("initializer", True)]


@pytest.mark.trl
@pytest.mark.usefixtures("torchrun_lock")
def test_the_pages_training_on_two_nodes_prints_its_result(laptop_without_options, tmp_path):
    """The environment of PyTorch's image has torch; nobody has to name one."""
    [block] = [one for one in python_blocks("core") if one.page == "docs/how-to/python.md"]
    program = tmp_path / "train.py"  # a file, because the source of the function is read from it
    program.write_text(block.text)
    with laptop_without_options() as laptop:
        variables = {**os.environ, "KUBECONFIG": str(laptop.kubeconfig)}
        done = subprocess.run([sys.executable, program], env=variables, capture_output=True, text=True, check=False)
        log = (laptop.state / "cluster.log").read_text()
    assert done.returncode == 0, done.stderr + log
    result, phase = done.stdout.splitlines()[-2:]
    assert json.loads(result.removeprefix("[node-0] trainjob result: "))["loss"] < 0.1
    assert phase.endswith(": Complete")
    assert [(one.name, one.ready) for one in list_environments()] == [("trl", True)]
