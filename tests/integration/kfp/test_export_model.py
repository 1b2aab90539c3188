"""Tests of the component `export_model` with an object store, to which only the TrainJob writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from kfp import dsl
from kubernetes import client, config

from tests.support.export_runs import make_model, make_run, make_trl_run
from tests.support.s3_server import S3Server
from trainjob_kfp import export_model

pytestmark = [pytest.mark.torchtune]
# A path as KFP 2.17's driver creates it: the run's root, the task, a random word, the artifact's name.
ARTIFACT_PATH = "models/v2/artifacts/tickets-llm/0d8b6c5e/export-model/3f2a/model"


@pytest.fixture
def store(laptop, unique):
    """Yield an object store; the Secret with its credentials has the name of the test."""
    with S3Server() as server:
        core = client.CoreV1Api(config.new_client_from_config(str(laptop.kubeconfig)))
        core.create_namespaced_secret("default", {"metadata": {"name": unique}, "stringData": server.environment})
        yield server


@pytest.fixture
def workspace(tmp_path):
    make_model(tmp_path / "workspace" / "model")
    make_run(tmp_path / "workspace" / "output" / "try")
    return str(tmp_path / "workspace")


@pytest.fixture
def export(laptop, monkeypatch, unique, store, workspace, tmp_path):
    """Return a function that runs the component, and returns its outputs and artifact."""
    monkeypatch.setenv("KUBECONFIG", str(laptop.kubeconfig))

    def run(uri, **arguments):
        model = dsl.Model(uri=uri)
        model.custom_path = str(tmp_path / "artifact")
        outputs = export_model.python_func(
            workspace=workspace, output_path="try", model=model, secret=unique, endpoint=store.url, **arguments
        )
        return outputs._asdict(), model

    return run


@pytest.mark.parametrize("scheme", ["s3", "minio"])
def test_without_a_destination_the_model_is_written_to_the_artifacts_location(export, store, scheme):
    outputs, model = export(f"{scheme}://{ARTIFACT_PATH}")
    assert {"config.json", "model.safetensors", "manifest.json"} <= set(store.read_prefix(ARTIFACT_PATH))
    assert model.uri == f"{scheme}://{ARTIFACT_PATH}"
    assert not Path(model.path).exists()  # so that KFP's launcher has nothing to upload
    assert outputs["output_path"] == model.metadata["location"] == f"s3://{ARTIFACT_PATH}"
    assert model.metadata["digest"].startswith("sha256:")
    assert model.metadata["files"] == 7


def test_with_a_destination_the_artifact_is_a_file_with_the_location(export, store):
    outputs, model = export(f"s3://{ARTIFACT_PATH}", destination="s3://models/tickets")
    assert "manifest.json" in store.read_prefix("models/tickets")
    assert store.read_prefix(ARTIFACT_PATH) == {}
    assert model.uri == f"s3://{ARTIFACT_PATH}"  # KFP's launcher uploads the file to it
    assert json.loads(Path(model.path).read_text())["location"] == "s3://models/tickets"
    assert outputs["output_path"] == model.metadata["location"] == "s3://models/tickets"


@pytest.mark.parametrize(("adapter", "file"), [("merge", "model.safetensors"), ("keep", "adapter_model.safetensors")])
def test_a_lora_run_of_trl_is_exported_merged_or_as_an_adapter(export, store, workspace, adapter, file):
    shutil.rmtree(Path(workspace) / "output")
    make_trl_run(Path(workspace) / "output" / "try", adapter=True, merged=True)
    _, model = export(f"s3://{ARTIFACT_PATH}", adapter=adapter)
    files = store.read_prefix(ARTIFACT_PATH)
    assert [name for name in files if name.endswith(".safetensors")] == [file]
    assert model.metadata["kind"] == ("adapter" if adapter == "keep" else "model")
    assert model.metadata["metrics"]["loss"] == 0.56


@pytest.mark.parametrize("uri", ["/tmp/outputs/export-model/model", "azure://bucket/model"])
def test_an_artifact_location_that_an_export_cannot_write_is_an_error(export, store, capsys, uri):
    with pytest.raises(SystemExit) as ended:
        export(uri)
    assert ended.value.code == 2
    assert "destination cannot be ''" in capsys.readouterr().err
    assert not store.requests
