"""The component `export_model` from its artifact to an object store: the TrainJob writes there, and nobody else."""

from __future__ import annotations

from pathlib import Path

import pytest
from kfp import dsl
from kubernetes import client, config

from tests.support.export_runs import make_model, make_run
from tests.support.s3_server import S3Server
from trainjob_kfp import export_model

pytestmark = [pytest.mark.timeout(120), pytest.mark.torchtune]
# As KFP 2.17's driver makes it: the run's root, the task, a random word, the artifact's name.
ARTIFACT_PATH = "models/v2/artifacts/tickets-llm/0d8b6c5e/export-model/3f2a/model"


@pytest.fixture
def store(laptop, unique):
    """An object store, and the Secret with its credentials, called like the test."""
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
def export(laptop, monkeypatch, unique, store, workspace):
    """Runs the component as KFP's executor does: (outputs by name, the artifact)."""
    monkeypatch.setenv("KUBECONFIG", str(laptop.kubeconfig))

    def run(uri, **arguments):
        model = dsl.Model(uri=uri)
        made = export_model.python_func(
            workspace=workspace, output_path="try", model=model, secret=unique, endpoint=store.url, **arguments
        )
        return made._asdict(), model

    return run


@pytest.mark.parametrize("scheme", ["s3", "minio"])
def test_without_a_destination_the_model_is_where_its_artifact_is(export, store, scheme):
    made, model = export(f"{scheme}://{ARTIFACT_PATH}")
    assert {"config.json", "model.safetensors", "manifest.json"} <= set(store.below(ARTIFACT_PATH))
    assert model.uri == f"{scheme}://{ARTIFACT_PATH}"
    assert not Path(model.path).exists()  # so that KFP's launcher has nothing to upload
    assert made["output_path"] == model.metadata["location"] == f"s3://{ARTIFACT_PATH}"
    assert model.metadata["digest"].startswith("sha256:")
    assert model.metadata["files"] == 7


def test_with_a_destination_the_artifact_only_refers_to_it(export, store):
    made, model = export(f"s3://{ARTIFACT_PATH}", destination="s3://models/tickets")
    assert "manifest.json" in store.below("models/tickets")
    assert store.below(ARTIFACT_PATH) == {}
    assert model.uri == f"s3://{ARTIFACT_PATH}"
    assert made["output_path"] == model.metadata["location"] == "s3://models/tickets"


@pytest.mark.parametrize("uri", ["/tmp/outputs/export-model/model", "azure://bucket/model"])
def test_where_an_export_cannot_write_it_says_what_to_give(export, store, capsys, uri):
    with pytest.raises(SystemExit) as ended:
        export(uri)
    assert ended.value.code == 2
    assert "destination: '' is not allowed" in capsys.readouterr().err
    assert not store.requests
