"""Origin of a model: the export and `origin_check` refuse one of another TrainJob or run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.programs.export.export_program import RunExport, export_environment
from tests.support.export_runs import make_model, make_run, make_trl_run
from trainjob.manifest import build_trainjob, labels, to_trainjob
from trainjob.programs.export.origin import Origin, read_origin
from trainjob.spec import CustomTrainerContainer, ExportModel, FineTune, ModelCheck, TrainJob

OWN_RUN = "airflow/tickets/manual__2026-11-26T01%3A00%3A00"
OTHER_RUN = "airflow/tickets/manual__2026-11-25T01%3A00%3A00"
OWN = {"TRAINJOB_NAME": "export-22222222", "TRAINJOB_WORKFLOW_RUN": OWN_RUN}
KEY = json.dumps({"engine": "airflow", "workflow": "tickets", "task": "t", "run": "r:1", "map_index": "", "origin": ""})


def record_torchtune(output: Path, job: str, run: str) -> None:
    make_run(output)
    config = output / "torchtune_config.yaml"
    config.write_text(f"{config.read_text()}trainjob_trained_by: {job}\ntrainjob_workflow_run: {run}\n")


def record_trl(output: Path, job: str, run: str) -> None:
    make_trl_run(output, trained_by=job, workflow_run=run)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a workspace with a base model, and without a training."""
    make_model(tmp_path / "workspace" / "model")
    return tmp_path / "workspace"


@pytest.mark.parametrize("record", [record_torchtune, record_trl])
@pytest.mark.parametrize(
    ("run", "options", "accepted"),
    [
        (OWN_RUN, [], True),
        (OTHER_RUN, [], False),
        (OTHER_RUN, ["--any-run"], True),
        (OTHER_RUN, ["--after-job", "data-00000000", "--after-job", "tune-11111111"], True),
        (OWN_RUN, ["--after-job", "tune-33333333"], False),
    ],
    ids=["own run", "other run", "any run", "linked", "another of the own run"],
)
def test_an_export_accepts_a_checkpoint_of_its_run_or_of_the_named_trainjob(
    workspace, run_export: RunExport, record, run, options, accepted
):
    record(workspace / "output", "tune-11111111", run)
    ended = run_export(workspace / "export", *options, **OWN)
    if accepted:
        assert ended.returncode == 0, ended.stderr
        manifest = json.loads((workspace / "export" / "manifest.json").read_text())
        assert (manifest["trained_by"], manifest["workflow_run"]) == ("tune-11111111", run)
        assert read_origin(workspace / "export") == Origin("tune-11111111", run)
    else:
        assert ended.returncode == 1
        assert f"the model in {workspace}/output is of TrainJob tune-11111111, run airflow/tickets/" in ended.stderr
        assert ("not of tune-33333333" if options else "not of this run, airflow/tickets/manual") in ended.stderr
        assert not (workspace / "export").exists()


@pytest.mark.parametrize("make", [make_run, make_trl_run])
def test_a_checkpoint_without_a_record_is_exported_with_a_note(workspace, run_export: RunExport, make):
    """Earlier versions, the runtimes' own trainers and functions of users write no record."""
    make(workspace / "output")
    ended = run_export(workspace / "export", **OWN)
    assert ended.returncode == 0, ended.stderr
    assert f"export: {workspace}/output has no record of the TrainJob that trained" in ended.stdout


def test_the_record_of_the_later_framework_counts(workspace):
    """A TorchTune run in the folder of an earlier TRL run."""
    record_trl(workspace / "output", "trl-11111111", OTHER_RUN)
    record_torchtune(workspace / "output", "tune-22222222", OWN_RUN)
    assert read_origin(workspace / "output") == Origin("tune-22222222", OWN_RUN)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"trained_by": 1}', '{"trained_by": "a b\\u001b[0m"}', '{"workflow_run": "airflow/a/b"}'],
)
def test_a_damaged_record_is_none(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    assert read_origin(tmp_path) == Origin()


@pytest.mark.parametrize(
    ("run", "options", "accepted"),
    [(OWN_RUN, [], True), (OTHER_RUN, [], False), (OTHER_RUN, ["--after-job", "tune-11111111"], True)],
)
def test_a_command_starts_if_its_models_are_of_the_run(tmp_path, run, options, accepted):
    """Folders without a record, such as a dataset, are not checked."""
    origin = {"trained_by": "tune-11111111", "workflow_run": run}
    (tmp_path / "candidate").mkdir()
    (tmp_path / "candidate" / "manifest.json").write_text(json.dumps(origin))
    check = ["-m", "trainjob.programs.export.origin_check", "--folder", tmp_path / "data", "--folder"]
    command = [sys.executable, *check, tmp_path / "candidate", *options, "echo", "--after-job", "scored"]
    environment = export_environment(tmp_path, **OWN)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == ((0, "--after-job scored\n") if accepted else (1, ""))
    assert accepted or "candidate is of TrainJob tune-11111111, run airflow/" in ended.stderr


def build(step: Any) -> dict[str, Any]:
    job = to_trainjob(step, run="1-2")
    trainer: dict[str, Any] = build_trainjob(job, name="a-1", namespace="b", annotations={labels.RUN_KEY: KEY})["spec"]
    return trainer["trainer"]


def test_the_containers_on_a_workspace_know_their_trainjob_and_run():
    """The names are arguments of TorchTune, which writes all of its arguments beside the checkpoint."""
    trained = build(FineTune(model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w"))
    variables = {"TRAINJOB_NAME": "a-1", "TRAINJOB_WORKFLOW_RUN": "airflow/tickets/r%3A1"}
    assert {each["name"]: each.get("value") for each in trained["env"]}.items() >= variables.items()
    expected = ["trainjob_trained_by=$(TRAINJOB_NAME)", "trainjob_workflow_run=$(TRAINJOB_WORKFLOW_RUN)"]
    assert trained["args"][-2:] == expected
    exported = build(ExportModel(workspace="w", destination="s3://b/x", after_jobs=["tune-1"], any_run=True))
    assert exported["args"][-3:] == ["--after-job", "tune-1", "--any-run"]
    assert "env" not in build(TrainJob(trainer=CustomTrainerContainer(command=["true"])))


def test_a_checked_command_runs_as_it_is_sent(tmp_path):
    check = ModelCheck(folders=["/workspace/candidate"], after_jobs=["tune-1"])
    step = TrainJob(trainer=CustomTrainerContainer(command=["echo", "scored"]), workspace="w", model_check=check)
    command = [word.replace("/workspace", str(tmp_path)) for word in build(step)["command"]]
    (tmp_path / "candidate").mkdir()
    record_trl(tmp_path / "candidate", "tune-1", OTHER_RUN)
    python = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    assert subprocess.run(command, env=python, capture_output=True, text=True).stdout == "scored\n"
    record_trl(tmp_path / "candidate", "tune-2", OTHER_RUN)
    refused = subprocess.run(command, env=python, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "is of TrainJob tune-2" in refused.stderr
