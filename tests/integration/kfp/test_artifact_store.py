"""Tests of an export to the object store that Kubeflow Pipelines is configured with."""

from __future__ import annotations

import pytest
import yaml
from kfp import dsl
from kubernetes import client, config

from tests.support.export_runs import make_model, make_run
from tests.support.s3_server import S3Server
from trainjob.errors import InvalidSpec, PermissionDenied
from trainjob_kfp import artifact_store, export_model
from trainjob_kfp.artifact_store import CONFIG_NAME, find_store, parse_store

URI = "minio://mlpipeline/v2/artifacts/tickets-llm/0d8b6c5e/export-model/3f2a/model"
INSTALLED = {
    "endpoint": "http://seaweedfs.kubeflow:9000",
    "region": "minio",
    "secret": {
        "name": "mlpipeline-minio-artifact",
        "keys": {"ACCESS_KEY_ID": "accesskey", "SECRET_ACCESS_KEY": "secretkey"},
    },
}
CREDENTIALS = {"fromEnv": False, "secretRef": {"secretName": "store", "accessKeyKey": "id", "secretKeyKey": "key"}}
STORE_SECRET = {"name": "store", "keys": {"ACCESS_KEY_ID": "id", "SECRET_ACCESS_KEY": "key"}}
DEFAULT = {"endpoint": "minio.team:9000", "region": "eu", "disableSSL": True, "credentials": CREDENTIALS}
NOT_GIVEN = {"endpoint": "", "region": "", "secret": {}, "namespace": ""}


def providers(scheme="minio", **provider):
    return {"providers": yaml.safe_dump({scheme: provider})}


def override(**fields):
    return {"bucketName": "mlpipeline", "keyPrefix": "v2/artifacts", "credentials": CREDENTIALS, **fields}


@pytest.mark.parametrize(
    ("uri", "data", "expected"),
    [
        (URI, {}, INSTALLED),
        (URI, {"providers": "", "defaultPipelineRoot": ""}, INSTALLED),
        (URI, providers("s3", default=DEFAULT), INSTALLED),
        (
            URI,
            providers(default=DEFAULT),
            {"endpoint": "http://minio.team:9000", "region": "eu", "secret": STORE_SECRET},
        ),
        (
            URI,
            providers(default={**DEFAULT, "disableSSL": False, "credentials": {"fromEnv": True}}),
            {"endpoint": "https://minio.team:9000", "region": "eu"},
        ),
        (
            URI,
            providers(default={**DEFAULT, "credentials": {"fromEnv": True}}, Overrides=[override(endpoint="other:1")]),
            {"endpoint": "http://other:1", "region": "eu", "secret": STORE_SECRET},
        ),
        (
            URI,
            providers(default=DEFAULT, overrides=[override(keyPrefix="v2/art"), override(bucketName="mlpipeline2")]),
            {"endpoint": "http://minio.team:9000", "region": "eu", "secret": STORE_SECRET},
        ),
        ("s3://bucket/v2/model", {}, {}),
        (
            "s3://bucket/v2/model",
            providers(
                "s3", default={"endpoint": "s3.amazonaws.com", "region": "eu-west-1", "credentials": CREDENTIALS}
            ),
            {"endpoint": "https://s3.amazonaws.com", "region": "eu-west-1", "secret": STORE_SECRET},
        ),
    ],
)
def test_the_store_is_that_of_kubeflow_pipelines(uri, data, expected):
    assert parse_store(uri, data) == expected


@pytest.mark.parametrize(
    "text", ["{", "5", "minio: 5", "minio: {default: {credentials: {secretRef: {}}}}", "minio: {overrides: [5]}"]
)
def test_a_wrong_configuration_is_refused(text):
    with pytest.raises(
        InvalidSpec, match=r"`providers` in the ConfigMap kfp-launcher cannot be read .*: give endpoint"
    ):
        parse_store(URI, {"providers": text})


@pytest.mark.parametrize(
    ("uri", "given"),
    [
        (URI, {"endpoint": "https://minio"}),
        ("s3://bucket/model", {"secret": {"name": "s3"}}),
        ("gs://bucket/model", {}),
        ("/tmp/model", {}),
    ],
)
def test_the_arguments_of_the_author_are_kept(uri, given, monkeypatch):
    monkeypatch.setattr(artifact_store, "_read_namespace", lambda *_: pytest.fail("no request is needed"))
    assert find_store(uri, NOT_GIVEN | given) == {}


@pytest.fixture
def namespace(monkeypatch):
    """Return a function that sets what the launcher knows about its namespace."""

    def set_namespace(known):
        def read(*_):
            if isinstance(known, Exception):
                raise known
            return known

        monkeypatch.setattr(artifact_store, "_read_namespace", read)

    return set_namespace


def test_a_secret_of_another_namespace_is_refused(namespace):
    namespace(artifact_store.RunNamespace({}, "runs", "jobs"))
    with pytest.raises(
        InvalidSpec, match=r"Secret mlpipeline-minio-artifact .* is in namespace runs, and the TrainJob in j"
    ):
        find_store(URI, NOT_GIVEN)
    own = {"secret": {"name": "own"}, "region": "us"}
    assert find_store(URI, NOT_GIVEN | own) == {"endpoint": INSTALLED["endpoint"], "region": "us"}


def test_without_the_permission_the_error_names_the_role(namespace, capsys):
    namespace(PermissionDenied("configmaps is forbidden"))
    with pytest.raises(PermissionDenied, match="apply manifests/kfp in the namespace of the run, or give endpoint"):
        find_store(URI, NOT_GIVEN)
    assert find_store("s3://bucket/model", NOT_GIVEN) == {}
    assert "uses no settings of the ConfigMap kfp-launcher: configmaps is forbidden" in capsys.readouterr().out


@pytest.mark.torchtune
def test_an_export_needs_no_argument_about_the_store(laptop, monkeypatch, unique, tmp_path, capsys):
    monkeypatch.setenv("KUBECONFIG", str(laptop.kubeconfig))
    make_model(tmp_path / "workspace" / "model")
    make_run(tmp_path / "workspace" / "output" / "try")
    core = client.CoreV1Api(config.new_client_from_config(str(laptop.kubeconfig)))
    with S3Server() as server:
        uri = URI.replace("mlpipeline", server.buckets[0])
        values = [server.environment[name] for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY")]
        secret = dict(zip(("id", "key"), values, strict=True))
        core.create_namespaced_secret("default", {"metadata": {"name": unique}, "stringData": secret})
        reference = {**CREDENTIALS["secretRef"], "secretName": unique}
        store = {"endpoint": server.url, "region": "minio", "credentials": {"secretRef": reference}}
        body = {"metadata": {"name": CONFIG_NAME}, "data": providers(default=store)}
        core.create_namespaced_config_map("default", body)
        try:
            model = dsl.Model(uri=uri)
            model.custom_path = str(tmp_path / "artifact")
            export_model.python_func(workspace=str(tmp_path / "workspace"), output_path="try", model=model)
        finally:
            core.delete_namespaced_config_map(CONFIG_NAME, "default")
        assert "manifest.json" in server.read_prefix(uri.removeprefix("minio://"))
    assert model.uri == uri
    assert values[1] not in "".join(capsys.readouterr())
