"""Registration of an export in the model registry of a real MLflow server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.integration.programs.export.export_program import RunExport, StartExport
from tests.support.export_runs import make_run
from tests.support.http_proxy import HookedProxy, authorizing_proxy
from tests.support.mlflow_server import MLflowServer
from trainjob.manifest import build_trainjob, to_trainjob
from trainjob.spec import ExportModel, MLflowRegistry

pytestmark = pytest.mark.slow
RUN = "airflow/tickets/manual__2026-11-26T01%3A00%3A00"
RUN_TAGS = {"trainjob.engine": "airflow", "trainjob.workflow": "tickets", "trainjob.run": "manual__2026-11-26T01:00:00"}
SOURCE = "s3://models/tickets"
OWN = {"TRAINJOB_NAME": "export-22222222", "TRAINJOB_WORKFLOW_RUN": RUN}


@pytest.fixture
def job(workspace: Path, unique: str) -> str:
    """Return the name of the TrainJob that trained the model in the workspace."""
    config = workspace / "output" / "torchtune_config.yaml"
    config.write_text(f"{config.read_text()}trainjob_trained_by: {unique}\ntrainjob_workflow_run: {RUN}\n")
    return unique


def registry_arguments(url: str, model: str, **more: str) -> list[str]:
    entry = {"backend": "mlflow", "tracking_uri": url, "model": model, "uri": SOURCE, "alias": "champion", **more}
    return ["--registry", json.dumps(entry), "--manifest", json.dumps({"base_model": "hf://org/base", "a/../b(c": 1})]


def read_receipt(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1].removeprefix("export: done "))
    return found


def tags_of(found: dict[str, Any]) -> dict[str, str]:
    return {each["key"]: each["value"] for each in found.get("tags", [])}


def test_a_version_has_alias_tags_and_the_tracked_run(
    mlflow: MLflowServer, workspace: Path, run_export: RunExport, job: str
) -> None:
    tracked = mlflow.create_run(job, {"trainjob.name": job, **RUN_TAGS}, 1000)
    mlflow.create_run(job, {"trainjob.name": job, **RUN_TAGS, "trainjob.run": "another"}, 1000)
    first = read_receipt(run_export(workspace / "export", *registry_arguments(mlflow.url, job), **OWN))
    assert first["registered"] == {"model": job, "version": "1", "alias": "champion", "run_id": tracked}
    [version] = mlflow.list_versions(job)
    assert (version["source"], version["run_id"], version["status"]) == (SOURCE, tracked, "READY")
    tags = tags_of(version)
    assert tags["trainjob.digest"] == first["manifest_sha256"]
    expected = {
        "trainjob.base_model": "hf://org/base",
        "trainjob.trained_by": job,
        "trainjob.workflow_run": RUN,
        "trainjob.metrics.loss": "0.25",
        "trainjob.metrics.grad_norm": "nan",
        "trainjob.parameters.epochs": "2",
        "trainjob.a/b_c": "1",
    }
    assert tags.items() >= expected.items()
    assert tags_of(mlflow.get_run(tracked)["data"])["trainjob.exported_model"] == SOURCE
    again = read_receipt(run_export(workspace / "export", *registry_arguments(mlflow.url, job), **OWN))
    assert again == {**first, "sent": 0}
    assert len(mlflow.list_versions(job)) == 1


def test_another_export_is_another_version_and_gets_the_alias(
    mlflow: MLflowServer, workspace: Path, run_export: RunExport, unique: str
) -> None:
    read_receipt(run_export(workspace / "export", *registry_arguments(mlflow.url, unique)))
    make_run(workspace / "output", seed="b")
    second = read_receipt(run_export(workspace / "export", *registry_arguments(mlflow.url, unique)))["registered"]
    assert second == {"model": unique, "version": "2", "alias": "champion"}
    assert mlflow.get_aliases(unique) == {"champion": "2"}
    read_receipt(run_export(workspace / "export", *registry_arguments(mlflow.url, unique, uri="s3://models/other")))
    assert [version["source"] for version in mlflow.list_versions(unique)] == ["s3://models/other", SOURCE, SOURCE]


@pytest.mark.parametrize("after", [False, True], ids=["before-the-server-acts", "before-it-answers"])
@pytest.mark.parametrize("path", ["registered-models/create", "model-versions/create", "registered-models/alias"])
def test_a_killed_registration_is_completed(
    mlflow: MLflowServer, workspace: Path, start_export: StartExport, run_export: RunExport, unique, path, after
) -> None:
    process: subprocess.Popen[str] | None = None

    def kill(request: BaseHTTPRequestHandler, done: bool) -> int:
        if request.path.endswith(path) and done == after and process:
            os.kill(process.pid, signal.SIGKILL)
        return 0

    with HookedProxy(mlflow.url, kill) as proxy:
        process = start_export(workspace / "export", *registry_arguments(proxy.url, unique))
        process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL
    read_receipt(run_export(workspace / "export", *registry_arguments(mlflow.url, unique)))
    assert [version["version"] for version in mlflow.list_versions(unique)] == ["1"]
    assert mlflow.get_aliases(unique) == {"champion": "1"}


def test_a_lost_answer_leaves_one_version(
    mlflow: MLflowServer, workspace: Path, run_export: RunExport, unique: str
) -> None:
    """The server creates a version for each try; the oldest one remains."""
    answers = [503, 503, 0]

    def lose(request: BaseHTTPRequestHandler, done: bool) -> int:
        return answers.pop(0) if done and request.path.endswith("model-versions/create") else 0

    with HookedProxy(mlflow.url, lose) as proxy:
        receipt = read_receipt(run_export(workspace / "export", *registry_arguments(proxy.url, unique)))
    assert (receipt["registered"]["version"], answers) == ("1", [])
    assert [version["version"] for version in mlflow.list_versions(unique)] == ["1"]


def test_exports_that_run_at_once_have_one_version(
    mlflow: MLflowServer, workspace: Path, start_export: StartExport, unique: str
) -> None:
    """Both find no version and create one."""
    both = threading.Barrier(2, timeout=120)

    def meet(request: BaseHTTPRequestHandler, done: bool) -> int:
        if request.path.endswith("model-versions/create") and not done:
            both.wait()
        return 0

    with HookedProxy(mlflow.url, meet) as proxy:
        arguments = registry_arguments(proxy.url, unique)
        processes = [start_export(workspace / f"export-{number}", *arguments) for number in range(2)]
        ended = [(process.communicate(timeout=300), process.returncode) for process in processes]
    assert [code for _, code in ended] == [0, 0], ended
    assert [version["version"] for version in mlflow.list_versions(unique)] == ["1"]
    assert mlflow.get_aliases(unique) == {"champion": "1"}


@pytest.mark.parametrize(
    ("login", "authorization"),
    [
        ({"MLFLOW_TRACKING_TOKEN": "the-right-token"}, "Bearer the-right-token"),
        (
            {"MLFLOW_TRACKING_USERNAME": "team", "MLFLOW_TRACKING_PASSWORD": "pass-word", "MLFLOW_TRACKING_TOKEN": "t"},
            "Basic dGVhbTpwYXNzLXdvcmQ=",
        ),
    ],
)
def test_a_wrong_login_is_refused_before_the_upload(
    mlflow: MLflowServer, workspace: Path, run_export: RunExport, unique: str, login, authorization
) -> None:
    with authorizing_proxy(mlflow.url, authorization) as proxy:
        arguments = registry_arguments(proxy.url, unique)
        wrong = {name: f"wrong-{value}" for name, value in login.items()}
        failed = run_export(workspace / "export", *arguments, **wrong)
        assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 2)
        assert "access denied (401)" in failed.stderr
        assert "check MLFLOW_TRACKING_TOKEN" in failed.stderr
        assert not any(value in failed.stdout + failed.stderr for value in wrong.values() if value != "wrong-team")
        assert not (workspace / "export").exists()
        read_receipt(run_export(workspace / "export", *arguments, **login))


def test_the_login_is_not_sent_to_a_redirect_target(
    mlflow: MLflowServer, workspace: Path, run_export: RunExport, unique: str
) -> None:
    redirected = []

    def redirect(request: BaseHTTPRequestHandler, _: bool) -> int:
        redirected.append(request.path)
        return 307

    with HookedProxy(mlflow.url, redirect) as proxy:
        failed = run_export(workspace / "export", *registry_arguments(proxy.url, unique))
    assert "returned 307" in failed.stderr
    assert len(redirected) == 1


def test_another_server_and_an_unreachable_one_are_refused_before_the_upload(
    mlflow: MLflowServer, workspace: Path, run_export: RunExport, refusing_url: str, unique: str
) -> None:
    expected = {refusing_url: "no response", f"{mlflow.url}/other": "returned 404"}
    for url, message in expected.items():
        failed = run_export(workspace / "export", *registry_arguments(url, unique))
        assert (failed.returncode, len(failed.stderr.splitlines())) == (1, 2)
        assert message in failed.stderr
    assert not (workspace / "export").exists()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"model": "m", "uri": "s3://b/m"}, "give tracking_uri, model and uri, and optionally alias"),
        ({"tracking_uri": "ftp://m", "model": "m", "uri": "s3://b/m"}, "must begin with https:// or http://"),
    ],
)
def test_wrong_arguments(workspace: Path, run_export: RunExport, entry, message) -> None:
    failed = run_export(workspace / "export", "--registry", json.dumps({"backend": "mlflow", **entry}))
    assert failed.returncode == 2
    assert message in failed.stderr


@pytest.mark.parametrize(
    "destination", ["hf://org/name@v1/folder", "gs://b/x", "az://container/x", "pvc://tickets/export"]
)
def test_mlflow_accepts_every_location(
    mlflow: MLflowServer, workspace: Path, run_export: RunExport, unique: str, destination: str
) -> None:
    read_receipt(run_export(workspace / "export", *registry_arguments(mlflow.url, unique, uri=destination)))
    assert [version["source"] for version in mlflow.list_versions(unique)] == [destination]


def test_the_step_passes_a_reference_to_the_login() -> None:
    registry = MLflowRegistry(tracking_uri="https://mlflow/", model="tickets", alias="champion", secret="mlflow")
    step = ExportModel(workspace="tickets", destination="/workspace/export", registry=registry)
    trainer = build_trainjob(to_trainjob(step), name="n", namespace="ns")["spec"]["trainer"]
    assert json.loads(trainer["args"][trainer["args"].index("--registry") + 1]) == {
        "backend": "mlflow",
        "tracking_uri": "https://mlflow",
        "model": "tickets",
        "alias": "champion",
        "uri": "pvc://tickets/export",
    }
    keys = ["MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"]
    assert trainer["args"][trainer["args"].index("--secret") :] == ["--secret", "mlflow", *keys]
    references = {each["name"]: each["valueFrom"]["secretKeyRef"] for each in trainer["env"] if "valueFrom" in each}
    assert references == {key: {"name": "mlflow", "key": key, "optional": True} for key in keys}
