"""Fetches, exports and registrations as TrainJobs of a laptop cluster, with credentials in Secrets."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubernetes import client, config

from tests.integration.programs.fetch.fetch_results import read_contents
from tests.support.azure_server import AzureServer
from tests.support.export_runs import make_model, make_run, make_trl_run
from tests.support.gcs_server import GcsServer
from tests.support.http_proxy import authorizing_proxy
from tests.support.mlflow_server import TRACKING_PYTHON
from tests.support.object_server import StoredObject
from tests.support.registry_server import RegistryServer
from tests.support.s3_server import S3Server
from trainjob.errors import NeverStarted
from trainjob.frameworks.tracking.recorder_process import PYTHON_VARIABLE
from trainjob.lifecycle import Listener, RunKey, submit, wait
from trainjob.spec import (
    CustomTrainerContainer,
    ExportModel,
    InitializeDataset,
    InitializeModel,
    MLflow,
    MLflowRegistry,
    ModelRegistry,
    TrainJob,
    WorkspaceVolume,
)
from trainjob.status import Category, parse_step_result


@pytest.fixture
def create_secret(laptop):
    opened = config.new_client_from_config(str(laptop.kubeconfig))

    def put(name, **values):
        client.CoreV1Api(opened).create_namespaced_secret("default", {"metadata": {"name": name}, "stringData": values})

    yield put
    opened.close()


@pytest.fixture
def run_step(cluster, unique):
    """Return a function that runs a step and returns its result, progress and log lines."""

    def run(step, name):
        lines, progress = [], []
        reference = submit(cluster, step, RunKey("test", "workflow", f"{unique}-{name}", "run-1"))
        listener = Listener(on_log=lambda line: lines.append(line.text), on_progress=progress.append)
        outcome = wait(cluster, reference, listener=listener)
        assert outcome.succeeded, lines
        [receipt] = filter(None, map(parse_step_result, lines))
        return receipt, progress, lines

    return run


@pytest.mark.parametrize("kind", [S3Server, GcsServer, AzureServer], ids=["s3", "gs", "az"])
def test_a_dataset_is_fetched_from_an_object_store_only_once(run_step, create_secret, unique, tmp_path, evidence, kind):
    rows = {"data/train.parquet": b"rows" * 9, "data/test.parquet": b"more rows"}
    with kind() as store:
        store.objects |= {f"models/tickets/{name}": StoredObject(data, {}) for name, data in rows.items()}
        create_secret(unique, **store.environment)
        step = InitializeDataset(
            storage_uri=f"{store.scheme}://models/tickets",
            endpoint=store.url,
            secret=unique,
            workspace=WorkspaceVolume(node_path=str(tmp_path)),
        )
        first, progress, _ = run_step(step, "first")
        again, _, lines = run_step(step, "again")
    assert read_contents(tmp_path / "dataset") == rows
    assert (str(progress[-1]), first["fetched"], again) == ("100 % transferred", 2, {**first, "fetched": 0})
    assert not any(secret in line for line in lines for secret in store.environment.values())
    evidence("features", row="S3 initializer", cell="real run")


def test_a_model_is_exported_to_an_object_store(run_step, create_secret, unique, tmp_path, evidence):
    make_model(tmp_path / "model")
    make_run(tmp_path / "output")
    workspace = WorkspaceVolume(node_path=str(tmp_path))
    with GcsServer() as store:
        create_secret(unique, **{"key.json": store.environment["GOOGLE_CREDENTIALS"]})
        # `kubectl create secret --from-file=key.json` creates a Secret with this key.
        secret = {"name": unique, "keys": {"GOOGLE_CREDENTIALS": "key.json"}}
        step = ExportModel(workspace=workspace, destination="gs://models/v1", endpoint=store.url, secret=secret)
        receipt, _, lines = run_step(step, "export")
        again, _, _ = run_step(step, "again")
        assert "manifest.json" in store.read_prefix("models/v1")
    assert (receipt["sent"], again) == (8, {**receipt, "sent": 0})
    assert not any("of-the-test" in line for line in lines)
    evidence("features", row="export", cell="real run")


def test_a_model_is_registered_with_a_token_from_a_secret(run_step, create_secret, unique, tmp_path: Path, evidence):
    make_model(tmp_path / "model")
    make_run(tmp_path / "output")
    with RegistryServer(token="registry-token") as registry:
        create_secret(unique, token="registry-token")
        step = ExportModel(
            workspace=WorkspaceVolume(node_path=str(tmp_path)),
            destination="/workspace/export",
            registry=ModelRegistry(
                server=registry.url,
                model="tickets",
                version="v1",
                secret={"name": unique, "keys": {"REGISTRY_TOKEN": "token"}},
            ),
        )
        receipt, _, lines = run_step(step, "export")
    assert list(registry.version_properties()) == ["tickets/v1"]
    assert registry.version_properties()["tickets/v1"]["digest"] == receipt["manifest_sha256"]
    [artifact] = registry.objects["model_artifact"]
    assert (artifact["uri"], artifact["id"]) == (f"file://{tmp_path}/export", receipt["registered"]["artifact_id"])
    assert registry.violations == []
    assert "registry-token" not in "".join(lines)
    evidence("features", row="model registry", cell="real run")


@pytest.mark.slow
def test_a_tracked_model_is_registered_in_mlflow(run_step, cluster, create_secret, mlflow, unique, tmp_path):
    """The version is linked to the run of the training, of the same run of the workflow."""
    make_model(tmp_path / "model")
    workspace = WorkspaceVolume(node_path=str(tmp_path))
    with GcsServer() as store, authorizing_proxy(mlflow.url, "Bearer the-mlflow-token") as proxy:
        login = {"MLFLOW_TRACKING_TOKEN": "the-mlflow-token"}
        create_secret(unique, **login, GOOGLE_CREDENTIALS=store.environment["GOOGLE_CREDENTIALS"])
        trainer = CustomTrainerContainer(
            image="docker.io/library/python:3.12-alpine",
            command=("python", "-c", "print('Step 1 | loss:0.5 lr:0.1 ')"),
            env={PYTHON_VARIABLE: str(TRACKING_PYTHON)},
        )
        tracking = MLflow(tracking_uri=proxy.url, experiment=unique, secret=unique)
        training = TrainJob(trainer=trainer, tracking=tracking, workspace=workspace)
        reference = submit(cluster, training, RunKey("test", "workflow", unique, "run-1"))
        wait(cluster, reference).raise_for_failure()
        make_trl_run(tmp_path / "output", trained_by=reference.name, workflow_run="test/workflow/run-1")
        step = ExportModel(
            workspace=workspace,
            destination="gs://models/v1",
            endpoint=store.url,
            secret=unique,
            registry=MLflowRegistry(tracking_uri=proxy.url, model=unique, alias="champion", secret=unique),
        )
        receipt, _, lines = run_step(step, "export")
    [run] = mlflow.list_runs(unique)
    [version] = mlflow.list_versions(unique)
    assert (version["source"], version["run_id"]) == ("gs://models/v1", run["info"]["run_id"])
    assert receipt["registered"] == {
        "model": unique,
        "version": "1",
        "alias": "champion",
        "run_id": run["info"]["run_id"],
    }
    assert {"key": "trainjob.exported_model", "value": "gs://models/v1"} in run["data"]["tags"]
    assert "the-mlflow-token" not in "".join(lines)


def missing_secret_steps(workspace, name):
    registry = ModelRegistry(server="http://127.0.0.1:9", model="tickets", secret=name)
    return [
        InitializeModel(storage_uri="hf://demo/public", secret=name, workspace=workspace),
        ExportModel(destination="s3://models/v1", secret=name, workspace=workspace),
        ExportModel(destination="/workspace/export", registry=registry, workspace=workspace),
    ]


@pytest.mark.parametrize("number", range(3), ids=["model", "export", "registry"])
@pytest.mark.parametrize("exists", [False, True], ids=["no Secret", "other keys"])
def test_a_step_without_the_keys_of_its_secret_fails(cluster, create_secret, unique, tmp_path, number, exists):
    if exists:
        create_secret(unique, other="value")
    step = missing_secret_steps(WorkspaceVolume(node_path=str(tmp_path)), unique)[number]
    outcome = wait(cluster, submit(cluster, step, RunKey("test", "secrets", unique, "run")))
    assert outcome.category is Category.CONFIGURATION
    with pytest.raises(NeverStarted) as failed:
        outcome.raise_for_failure()
    assert f"the pod has no credentials of the Secret {unique}: it does not exist, or has none of the keys" in str(
        failed.value
    )
    assert failed.value.permanent
