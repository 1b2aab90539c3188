"""Tests that the code blocks for Kubeflow Pipelines in README.md and docs/ compile or run unchanged."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from unittest.mock import create_autospec

import kfp
import pytest
from google.protobuf import json_format
from kfp import compiler, dsl

from tests.support.code_blocks import ALL_BLOCKS, python_blocks, write_project
from tests.support.three_forms import describe_training, find_block, read_training
from trainjob_demo.engines.kfp import RUN_PIPELINE
from trainjob_kfp import steps

BLOCKS = python_blocks("kfp")
# After `local.init`, each call of a component in the process runs it, so these blocks need their own process.
LOCAL_RUN_BLOCKS = [block for block in BLOCKS if "local.init" in block.text]
COMPILED_BLOCKS = [block for block in BLOCKS if block not in LOCAL_RUN_BLOCKS]


@pytest.mark.parametrize("block", COMPILED_BLOCKS, ids=str)
def test_a_pipeline_compiles(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(block.page, tmp_path)
    path = tmp_path / "block.py"
    path.write_text(block.text, "utf-8")
    values = runpy.run_path(str(path)).values()
    pipelines = [value for value in values if isinstance(value, dsl.graph_component.GraphComponent)]
    assert pipelines
    for pipeline in pipelines:
        compiler.Compiler().compile(pipeline, str(tmp_path / "pipeline.yaml"))


def test_the_pipeline_of_a_page_trains_what_its_file_trains(tmp_path):
    (tmp_path / "block.py").write_text(find_block("kfp").text, "utf-8")
    [pipeline] = [
        value
        for value in runpy.run_path(str(tmp_path / "block.py")).values()
        if isinstance(value, dsl.graph_component.GraphComponent)
    ]
    inputs = pipeline.pipeline_spec.root.dag.tasks["fine-tune"].inputs.parameters
    given = {
        name: json_format.MessageToDict(value.runtime_value.constant)
        for name, value in inputs.items()
        if value.WhichOneof("kind") == "runtime_value" and name not in ("after_jobs", "workspace")
    }
    assert describe_training(steps.fine_tune({**given, "workspace": "tickets"}, None)) == read_training()


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
