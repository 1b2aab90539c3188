"""A training framework of another package, which adds it by an entry point."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.integration.tracking.event_files import read_event_files
from tests.support.framework_packages import line_framework, line_framework_folder
from tests.support.interrupted_trainings import killing_environment
from tests.support.mlflow_server import TRACKING_PYTHON
from trainjob import ExportModel, FineTune, InvalidSpec, RunKey, TensorBoard, submit, wait
from trainjob.frameworks.tracking.recorder_process import PYTHON_VARIABLE
from trainjob.inspection.model_location import find_model
from trainjob.lifecycle import Listener
from trainjob.manifest import spec_hash
from trainjob.spec import WorkspaceVolume

__all__ = ["killing_environment", "line_framework", "line_framework_folder"]


@pytest.mark.usefixtures("line_framework")
def test_a_fine_tuning_runs_with_a_framework_of_another_package(cluster, unique, tmp_path):
    workspace = WorkspaceVolume(node_path=str(tmp_path))
    step = FineTune(model="line", workspace=workspace, config={"framework": "line", "steps": 300}, image="python:3.11")
    lines, progress = [], []
    reference = submit(cluster, step, RunKey("test", "frameworks", unique, "run-1"))
    listener = Listener(on_log=lines.append, on_progress=progress.append)
    wait(cluster, reference, listener=listener).raise_for_failure()
    assert [str(line) for line in lines if "y = " in str(line)] == ["[node-0] y = 2.000 x + 1.000"]
    assert [(each.step, each.total) for each in progress] == [(step, 300) for step in range(50, 301, 50)]
    assert progress[-1].loss < progress[0].loss
    line = json.loads((tmp_path / "output" / "line.json").read_text())
    assert line == pytest.approx({"slope": 2, "intercept": 1}, abs=0.001)


@pytest.mark.usefixtures("line_framework")
def test_the_tracker_gets_the_metrics_and_the_export_finds_the_model(cluster, unique, tmp_path):
    workspace, key = WorkspaceVolume(node_path=str(tmp_path)), RunKey("test", "frameworks", unique, "run-1")
    training = FineTune(
        model="line",
        workspace=workspace,
        config={"framework": "line"},
        image="python:3.11",
        tracking=TensorBoard(),
        env={PYTHON_VARIABLE: str(TRACKING_PYTHON)},
    )
    reference = submit(cluster, training, key)
    wait(cluster, reference).raise_for_failure()
    losses = read_event_files(next(tmp_path.glob("tensorboard/*/*")))["scalars"]["loss"]
    assert [step for step, _ in losses] == [50, 100, 150, 200]
    assert find_model(cluster, cluster.get_trainjob(reference.name, reference.namespace)) == (workspace, "")
    export = ExportModel(destination="/workspace/export", workspace=workspace)
    wait(cluster, submit(cluster, export, replace(key, task="export"))).raise_for_failure()
    manifest = json.loads((tmp_path / "export" / "manifest.json").read_text())
    assert (manifest["framework"], manifest["trained_by"]) == ("line", reference.name)
    assert manifest["checkpoint"] == {"step": 200, "epoch": 1, "dtype": "float64"}
    assert manifest["files"].keys() == {"README.md", "config.json", "line.json", "model.safetensors"}


@pytest.mark.usefixtures("line_framework")
@pytest.mark.parametrize(("resume", "first_step"), [(True, 150), pytest.param(False, 50, marks=pytest.mark.slow)])
def test_the_next_attempt_resumes_unless_the_step_forbids_it(
    cluster, unique, tmp_path, killing_environment, resume, first_step
):
    step = FineTune(
        model="line",
        workspace=WorkspaceVolume(node_path=str(tmp_path)),
        config={"framework": "line"},
        image="python:3.11",
        env={**killing_environment, "KILL_AT": "checkpoint-150.json.new"},
        resume=resume,
    )
    key, steps = RunKey("test", "frameworks", unique, "run-1"), []
    assert wait(cluster, submit(cluster, step, key)).exit_code == 137
    listener = Listener(on_log=lambda line: steps.extend(re.findall(r"line: step (\d+)", line.text)))
    wait(cluster, submit(cluster, step, key), listener=listener).raise_for_failure()
    assert steps[0] == str(first_step)


@pytest.mark.usefixtures("line_framework")
def test_the_configuration_belongs_to_the_request():
    from line_framework import LineConfig  # type: ignore[import-not-found]

    def step(**config):
        return FineTune(model="line", workspace="w", config={"framework": "line", **config})

    assert step(steps=5).config == LineConfig(steps=5)
    assert spec_hash(step(steps=5)) == spec_hash(FineTune(model="line", workspace="w", config=LineConfig(steps=5)))
    assert len({spec_hash(step(steps=number)) for number in (5, 6)}) == 2
    with pytest.raises(InvalidSpec, match=r"config\.steps cannot be 0"):
        step(steps=0)


def run_python(program, path):
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env={"PYTHONPATH": str(path)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_package_is_loaded_when_a_request_uses_it(line_framework_folder):
    program = (
        "import sys; from trainjob import FineTune, TRLConfig; "
        "FineTune(model='m', workspace='w', config=TRLConfig(method='sft')); print('line_framework' in sys.modules); "
        "FineTune(model='line', workspace='w', config={'framework': 'line'}); print('line_framework' in sys.modules)"
    )
    assert run_python(program, line_framework_folder) == ["False", "True"]
