"""Tests that the code blocks for Kubeflow Pipelines in README.md and docs/ compile or run unchanged."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from unittest.mock import create_autospec

import kfp
import pytest
from kfp import compiler, dsl

from tests.support.code_blocks import ALL_BLOCKS, python_blocks
from trainjob_demo.engines.kfp import RUN_PIPELINE

BLOCKS = python_blocks("kfp")
# After `local.init`, each call of a component in the process runs it, so these blocks need their own process.
LOCAL_RUN_BLOCKS = [block for block in BLOCKS if "local.init" in block.text]
COMPILED_BLOCKS = [block for block in BLOCKS if block not in LOCAL_RUN_BLOCKS]


@pytest.mark.parametrize("block", COMPILED_BLOCKS, ids=str)
def test_a_pipeline_compiles(block, tmp_path):
    path = tmp_path / "block.py"
    path.write_text(block.text, "utf-8")
    values = runpy.run_path(str(path)).values()
    pipelines = [value for value in values if isinstance(value, dsl.graph_component.GraphComponent)]
    assert pipelines
    for pipeline in pipelines:
        compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))


@pytest.mark.parametrize("block", LOCAL_RUN_BLOCKS, ids=str)
def test_a_local_run_succeeds(block, laptop, tmp_path):
    environment = {**os.environ, "KUBECONFIG": str(laptop.kubeconfig)}
    (tmp_path / "block.py").write_text(block.text, "utf-8")
    done = subprocess.run(
        [sys.executable, RUN_PIPELINE, "block.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_client_has_the_methods_that_the_tutorial_calls(monkeypatch, tmp_path):
    """No test has a back end of Kubeflow Pipelines, so the client does nothing."""
    [block] = [one for one in ALL_BLOCKS if (one.page, one.title) == ("docs/tutorials/pipelines.md", "run.py")]
    client = create_autospec(kfp.Client)
    monkeypatch.setattr(kfp, "Client", client)
    (tmp_path / block.title).write_text(block.text, "utf-8")
    runpy.run_path(str(tmp_path / block.title))
    client.return_value.wait_for_run_completion.assert_called_once()
    assert client.terminate_run
