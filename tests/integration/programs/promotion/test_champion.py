"""Evaluations that compare with what is served, what has an alias, or what is at an address."""

from __future__ import annotations

import json

import pytest

from tests.integration.programs.promotion.test_aliases import open_registry
from tests.support.training_fixtures import hub
from trainjob.frameworks.evaluation.program import main
from trainjob.function_source import pack_function
from trainjob.manifest.program_packages import FETCH_PACKAGES
from trainjob.packing import program_command
from trainjob_local.demo.hub import HubServer

__all__ = ["hub"]
A, B = "pvc://team/models/a", "pvc://team/models/b"


def count_files(model_path):
    from pathlib import Path

    return [{"files": len([each for each in Path(model_path).iterdir() if each.is_file()])} for _ in range(5)]


@pytest.fixture
def workspace(tmp_path):
    """Return a folder with the models a, b and the new one `export`, which has most files."""
    folder = tmp_path / "workspace"
    for name, count in (("models/a", 1), ("models/b", 2), ("export", 3)):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text('{"model_type": "llama"}')
        for number in range(1, count):
            (folder / name / f"{number}.safetensors").touch()
    return folder


@pytest.fixture
def evaluate(workspace, promoter, monkeypatch, capsys):
    """Return a function that evaluates `export`: exit code, report and output."""
    monkeypatch.chdir(workspace)
    host, port = promoter.client.api.configuration.host.removeprefix("https://").rsplit(":", 1)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)

    def run(source, *more):
        words = {
            "--model": workspace / "export",
            "--champion-source": json.dumps({"alias": "champion", "service_kind": "InferenceService", **source}),
            "--claim": "team",
            "--api-folder": promoter.folder,
            "--fetch": json.dumps(program_command(*FETCH_PACKAGES)),
            "--output": workspace / "evaluation",
            "--workspace": workspace,
            "--function": pack_function(count_files),
            "--gates": json.dumps({"count_files/files": {"better_than_champion": True}}),
        }
        code = main([*(str(word) for pair in words.items() for word in pair), *more])
        path = workspace / "evaluation" / "report.json"
        captured = capsys.readouterr()
        report = json.loads(path.read_text()) if code == 0 else {}
        return code, report, captured.out + captured.err

    return run


def test_the_model_that_a_command_serves(evaluate, promoter):
    source = {"service": "tickets", "service_kind": "Command"}
    code, _, output = evaluate(source)
    assert code == 2
    assert "champion cannot be Command tickets: there is no such model yet: allow_missing_champion accepts" in output
    code, report, output = evaluate(source, "--allow-missing-champion")
    assert (code, report["passed"], report["champion_scores"]) == (0, True, {})
    assert "there is no champion yet: Command tickets: nothing is compared" in output
    for key, model, expected in (("monday", A, 2), ("tuesday", B, 1)):
        promoter.result("promote", key, model=model)
        code, report, output = evaluate(source)
        assert report["differences"]["count_files/files"]["value"] == expected
        assert f"the champion is {model}" in output
    promoter.result("rollback", "undo", run="run-of-tuesday")
    assert evaluate(source)[1]["differences"]["count_files/files"]["value"] == 2


@pytest.mark.parametrize("kind", ["kubeflow", "mlflow"])
def test_the_version_with_the_alias(evaluate, request, unique, kind):
    with open_registry(kind, request.getfixturevalue, unique, (A, B)) as registry:
        source = {"registry": registry.options}
        code, _, output = evaluate(source)
        assert code == 2
        assert "@champion: there is no such model yet: allow_missing_champion accepts that" in output
        registry.champion.set(registry.names[1])
        code, report, output = evaluate(source)
        assert (code, report["differences"]["count_files/files"]["value"]) == (0, 1), output


def test_an_address_is_fetched_once(evaluate, workspace, hub, monkeypatch):
    with HubServer(hub) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        source = {"uri": "hf://demo/tiny-llama"}
        code, report, output = evaluate(source)
        assert code == 0, output
        assert "evaluate: champion: fetch: done" in output
        folder = workspace / "evaluation" / "champion-model"
        assert (folder / "config.json").is_file()
        assert report["differences"]["count_files/files"]["value"] < 0
        assert not report["passed"]
        assert "scored by an earlier attempt" in evaluate(source)[2]
        code, _, output = evaluate({"uri": "hf://demo/none"})
        assert code == 1
        assert "the champion hf://demo/none cannot be fetched" in output


def test_files_on_another_claim_are_refused(evaluate):
    code, _, output = evaluate({"uri": "pvc://other/models/a"})
    assert code == 2
    assert "its files must be on the workspace or at an address from which they can be fetched" in output
