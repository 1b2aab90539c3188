"""Adoption of TrainJobs whose commands contain programs of an earlier version."""

from __future__ import annotations

import pytest

from tests.integration.programs.fetch.fetch_results import read_contents
from tests.support.export_runs import make_model, make_run
from tests.support.recorded_programs import RECORDED_COMMANDS
from trainjob.lifecycle import Listener, RunKey, submit, wait
from trainjob.spec import ExportModel, InitializeModel, WorkspaceVolume
from trainjob.status import parse_step_result


@pytest.fixture
def run_earlier_program(cluster, unique, monkeypatch):
    """Return a function that submits a step with the earlier program, and adopts its TrainJob."""

    def run(program, step):
        key, lines, progress = RunKey("test", "workflow", unique, "run-1"), [], []
        with monkeypatch.context() as earlier:
            earlier.setattr("trainjob.manifest.steps.program_command", lambda *_, **__: RECORDED_COMMANDS[program])
            created = submit(cluster, step, key)
        adopted = submit(cluster, step, key)
        assert (adopted.adopted, adopted.uid) == (True, created.uid)
        trainer = cluster.get_trainjob(adopted.name, "default")["spec"]["trainer"]
        assert trainer["command"] == RECORDED_COMMANDS[program]
        listener = Listener(on_log=lambda line: lines.append(line.text), on_progress=progress.append)
        outcome = wait(cluster, adopted, listener=listener)
        assert outcome.succeeded, lines
        receipts = list(filter(None, map(parse_step_result, lines)))
        assert len(receipts) == 1, lines
        return receipts[0], progress

    return run


def test_an_earlier_versions_fetch_ends_and_reports(run_earlier_program, hub, tmp_path):
    workspace = WorkspaceVolume(node_path=str(tmp_path))
    receipt, progress = run_earlier_program(
        "fetch", InitializeModel(storage_uri="hf://demo/tiny", endpoint=hub.url, workspace=workspace)
    )
    assert (receipt["files"], receipt["fetched"], str(progress[-1])) == (3, 3, "100 % transferred")
    assert sorted(read_contents(tmp_path / "model")) == ["config.json", "model.safetensors", "original/tokenizer.model"]


def test_an_earlier_versions_export_ends_and_reports(run_earlier_program, tmp_path):
    make_model(tmp_path / "model")
    make_run(tmp_path / "output")
    step = ExportModel(workspace=WorkspaceVolume(node_path=str(tmp_path)), destination="/workspace/export")
    receipt, _ = run_earlier_program("export", step)
    assert receipt["manifest_sha256"]
    assert (tmp_path / "export/manifest.json").is_file()
