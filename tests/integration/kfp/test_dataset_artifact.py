"""Tests of a dataset that is an artifact of Kubeflow Pipelines."""

# kfp reads the annotations of a component immediately, so this file has no `from __future__ import annotations`.

import pytest
import yaml
from kfp import dsl
from kubernetes import client, config

from tests.support.object_server import StoredObject
from tests.support.s3_server import S3Server
from trainjob.errors import InvalidSpec
from trainjob_kfp import artifact_store, initialize_dataset
from trainjob_kfp.artifact_store import CONFIG_NAME
from trainjob_kfp.dataset_artifact import find_source

ROWS = b'{"prompt": "a", "completion": "b"}\n' * 3
NOT_GIVEN = {"storage_uri": "", "endpoint": "", "region": "", "secret": {}, "namespace": ""}
PATH = "models/v2/artifacts/tickets/0d8b6c5e/prepare/3f2a/rows"


@dsl.component(base_image="python:3.12")
def prepare(rows: dsl.Output[dsl.Dataset]):
    """Write rows."""


@pytest.mark.parametrize(
    ("uri", "address"),
    [("minio://mlpipeline/v2/rows", "s3://mlpipeline/v2/rows"), *((uri, uri) for uri in ("gs://b/rows", "hf://a/b"))],
)
def test_the_address_is_that_of_the_artifact(uri, address, monkeypatch):
    monkeypatch.setattr(artifact_store, "_read_namespace", lambda *_: artifact_store.RunNamespace({}, "n", "n"))
    assert find_source(dsl.Dataset(uri=uri), NOT_GIVEN)["storage_uri"] == address


def test_without_an_artifact_the_arguments_are_kept():
    assert find_source(None, {**NOT_GIVEN, "storage_uri": "hf://a/b"}) == {}


@pytest.mark.parametrize(
    ("uri", "given", "message"),
    [
        ("s3://b/rows", {"storage_uri": "hf://a/b"}, "storage_uri cannot be 'hf://a/b': leave it out"),
        ("/tmp/outputs/rows", {}, "dataset cannot be '/tmp/outputs/rows': kfp.local keeps artifacts in local files"),
    ],
)
def test_an_artifact_that_cannot_be_fetched_is_refused(uri, given, message):
    with pytest.raises(InvalidSpec, match=message):
        find_source(dsl.Dataset(uri=uri), NOT_GIVEN | given)


def test_an_address_beside_an_artifact_does_not_compile():
    with pytest.raises(InvalidSpec, match=r"test_dataset_artifact.py:\d+: .*\nstorage_uri cannot be 'hf://a/b'"):

        @dsl.pipeline
        def both():
            initialize_dataset(workspace="w", dataset=prepare().outputs["rows"], storage_uri="hf://a/b")


def test_an_artifact_compiles_as_an_optional_input():
    @dsl.pipeline
    def chain():
        initialize_dataset(workspace="w", dataset=prepare().outputs["rows"])

    task = chain.pipeline_spec.root.dag.tasks["initialize-dataset"]
    assert task.inputs.artifacts["dataset"].task_output_artifact.producer_task == "prepare"
    component = chain.pipeline_spec.components["comp-initialize-dataset"]
    assert component.input_definitions.artifacts["dataset"].is_optional


@pytest.mark.torchtune
def test_the_training_job_fetches_the_artifact(laptop, monkeypatch, unique, tmp_path, capsys):
    """The store is that of the ConfigMap; the file has no extension, as `dsl.Dataset.path` has none."""
    monkeypatch.setenv("KUBECONFIG", str(laptop.kubeconfig))
    core = client.CoreV1Api(config.new_client_from_config(str(laptop.kubeconfig)))
    with S3Server() as server:
        server.objects[PATH] = StoredObject(ROWS, {})
        keys = ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")
        secret = {"metadata": {"name": unique}, "stringData": {name: server.environment[name] for name in keys}}
        core.create_namespaced_secret("default", secret)
        reference = {"secretName": unique, "accessKeyKey": keys[0], "secretKeyKey": keys[1]}
        store = {"endpoint": server.url, "region": "minio", "credentials": {"secretRef": reference}}
        data = {"providers": yaml.safe_dump({"minio": {"default": store}})}
        core.create_namespaced_config_map("default", {"metadata": {"name": CONFIG_NAME}, "data": data})
        try:
            initialize_dataset.python_func(
                workspace=str(tmp_path / "workspace"), dataset=dsl.Dataset(uri=f"minio://{PATH}")
            )
        finally:
            core.delete_namespaced_config_map(CONFIG_NAME, "default")
        assert (tmp_path / "workspace" / "dataset" / "rows.jsonl").read_bytes() == ROWS
    assert server.environment[keys[1]] not in "".join(capsys.readouterr())
