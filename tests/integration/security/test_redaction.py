"""Secrets do not appear in errors, the result of `repr()`, outcomes, logs or created objects."""
# mypy: disable-error-code="call-arg"

from __future__ import annotations

import contextlib
import json
import logging
import traceback

import pytest

from trainjob import (
    CustomTrainer,
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    HuggingFaceDatasetInitializer,
    InitializeDataset,
    InitializeModel,
    InvalidSpec,
    SecretKeyReference,
    SecretReference,
    TrainJob,
    TrainJobManifest,
)
from trainjob.client import Cluster, Connection
from trainjob.errors import ClusterError, ClusterUnreachable, Problem
from trainjob.manifest import build_trainjob
from trainjob.programs.export.destinations import Access, create_target

SECRET = "hunter2-0123456789"
URL = f"https://user:{SECRET}@host.example/path"
WRITTEN = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "spec": {"runtimeRef": {"name": "torch-distributed"}},
}


def with_env(component, name, value=SECRET):
    """Return a manifest with a variable for the trainer or an initializer."""
    variable = {"env": [{"name": "A", "value": "1"}, {"name": name, "value": value}]}
    spec = (
        {"trainer": variable}
        if component == "trainer"
        else {"initializer": {component: {"storageUri": "hf://a/b", **variable}}}
    )
    return {**WRITTEN, "spec": {**WRITTEN["spec"], **spec}}


def function():
    return 1


REQUESTS = {
    "a token in env": lambda: CustomTrainerContainer(env={"HF_TOKEN": SECRET}),
    "a token in env, of a wrong type": lambda: CustomTrainerContainer(env={"HF_TOKEN": [SECRET]}),
    "a password in env, of a wrong type": lambda: CustomTrainerContainer(env={"DB_PASSWD": [SECRET]}),
    "S3 keys in env": lambda: InitializeModel(
        storage_uri="s3://b/x", workspace="w", env={"AWS_SECRET_ACCESS_KEY": SECRET}
    ),
    "env as a text": lambda: CustomTrainerContainer(env=f"HF_TOKEN={SECRET}"),
    "env as a list": lambda: CustomTrainerContainer(env=[{"name": "HF_TOKEN", "value": SECRET}]),
    "a URL in env": lambda: CustomTrainerContainer(env={"DATABASE": URL}),
    "a pip index": lambda: CustomTrainer(func=function, pip_index_urls=[URL]),
    "a pip index, as a text": lambda: CustomTrainer(func=function, pip_index_urls=URL),
    "a pip index without a scheme": lambda: CustomTrainer(func=function, pip_index_urls=[f"user:{SECRET}@host/simple"]),
    "a package": lambda: CustomTrainer(func=function, packages_to_install=[f"git+https://{SECRET}@host/x"]),
    "a package with a password": lambda: CustomTrainer(func=function, packages_to_install=[f"x @ {URL}"]),
    "packages, as a text": lambda: CustomTrainer(func=function, packages_to_install=URL),
    "a source": lambda: InitializeDataset(storage_uri=f"s3://key:{SECRET}@bucket/x", workspace="w"),
    "a source, with one slash": lambda: InitializeDataset(storage_uri=f"s3:/key:{SECRET}@bucket", workspace="w"),
    "a source, as a list": lambda: InitializeDataset(storage_uri=[URL], workspace="w"),
    "an endpoint": lambda: InitializeModel(storage_uri="s3://b/x", workspace="w", endpoint=URL),
    "an endpoint, as a list": lambda: InitializeModel(storage_uri="s3://b/x", workspace="w", endpoint=[URL]),
    "a destination": lambda: ExportModel(workspace="w", destination=f"s3://key:{SECRET}@bucket/x"),
    "a destination of a long password": lambda: ExportModel(workspace="w", destination=f"gs:/k:{SECRET * 9}@b"),
    "the SDK's own field": lambda: HuggingFaceDatasetInitializer(storage_uri="hf://a/b", access_token=SECRET),
    "the SDK's fields for S3": lambda: InitializeModel(storage_uri="s3://b/x", workspace="w", secret_access_key=SECRET),
    "a secret in the place of its name": lambda: InitializeDataset(
        storage_uri="hf://a/b", workspace="w", secret=f"{SECRET}/+="
    ),
    "a secret as a dict": lambda: FineTune(
        model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", secret={"HF_TOKEN": SECRET}
    ),
    "a secret as a key": lambda: SecretReference(name="s", keys={"HF_TOKEN": f"{SECRET}/+="}),
    "a secret as a reference's key": lambda: SecretKeyReference(name="s", key=f"{SECRET}/+="),
    "a field that there is not": lambda: FineTune(
        model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", hf_token=SECRET
    ),
    "a manifest that is not YAML": lambda: TrainJobManifest(manifest=f"a: {{value: {SECRET}\n  b: ["),
    "a manifest in one line": lambda: TrainJobManifest(manifest=f'{{"env": "{SECRET}", }} x'),
    "a Secret in the place of a TrainJob": lambda: TrainJobManifest(
        manifest={"apiVersion": "v1", "kind": "Secret", "stringData": {"token": SECRET}}
    ),
    "a manifest's token": lambda: TrainJobManifest(manifest=with_env("trainer", "HF_TOKEN")),
    "a manifest's URL": lambda: TrainJobManifest(manifest=with_env("trainer", "X", URL)),
    "a manifest's token of an initializer": lambda: TrainJobManifest(manifest=with_env("dataset", "ACCESS_TOKEN")),
    "a manifest's env, of a wrong type": lambda: TrainJobManifest(
        manifest={**WRITTEN, "spec": {**WRITTEN["spec"], "trainer": {"env": {"HF_TOKEN": SECRET}}}}
    ),
    "an export's address": lambda: create_target(f"s3://key:{SECRET}@bucket/x", Access()),
    "an export's address of no form": lambda: create_target(f"gs://key:{SECRET}@bucket/x", Access()),
    "a server": lambda: Connection(server=f"https://user:{SECRET}@host"),
}


def format_refusal(name):
    """Return the error as Python prints it, with its class and its traceback."""
    with pytest.raises(InvalidSpec) as raised:
        REQUESTS[name]()
    return "".join(traceback.format_exception(raised.value)) + repr(raised.value)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_refusal_does_not_show_the_secret(name):
    """If a refused request contains a secret, the error does not show it."""
    assert SECRET not in format_refusal(name)


def test_evidence_of_all_refusals(evidence):
    refusals = [format_refusal(name) for name in REQUESTS]
    shown = sum(SECRET in text for text in refusals)
    result = f"{len(refusals)} ways of {len(REQUESTS)} refused, the value shown in {shown}"
    evidence("security", check="credentials given as plain values", result=result)


def test_a_value_that_is_no_credential_is_accepted():
    env = {"A": "git@host:x", "B": "https://host/a@b", "C": "user:password", "D": "ssh://git@host/x", "TOKENS": "5"}
    trainer = CustomTrainer(func=function, env=env, packages_to_install=["x @ git+ssh://git@host/y"])
    variables = build_trainjob(TrainJob(trainer=trainer), name="n", namespace="t")["spec"]["trainer"]["env"]
    assert {variable["name"]: variable["value"] for variable in variables} == env
    assert TrainJobManifest(manifest=with_env("trainer", "HF_TOKEN", "")).manifest


def test_references_show_names_only():
    job = FineTune(
        model="llama3.2-1b",
        config={"framework": "torchtune"},
        workspace="w",
        secret="hf",
        env={"X": SecretKeyReference(name="s", key="k")},
    )
    assert "'k'" in repr(job)
    assert str(Problem("x", URL, URL)).count("***@host.example") == 2


@pytest.mark.parametrize("field", ["kubeconfig_text", "server"])
def test_a_connection_does_not_show_its_credentials(field):
    content = json.dumps({"users": [{"name": "u", "user": {"token": SECRET}}]})
    given = {"kubeconfig_text": content} if field == "kubeconfig_text" else {"server": "https://h", "token_file": "/t"}
    assert SECRET not in repr(Connection(**given)) + str(Connection(**given))


def test_no_log_contains_a_token(laptop, tmp_path, caplog, evidence):
    """No logger at level DEBUG logs a token, including those of urllib3 and the client."""
    file = tmp_path / "token"
    file.write_text(laptop.token)
    for token_file, retry_seconds in ((file, 5.0), (tmp_path / "wrong", 0.0)):
        (tmp_path / "wrong").write_text(SECRET)
        connection = Connection(server=laptop.server, token_file=str(token_file), ca_file=str(laptop.ca_file))
        with contextlib.closing(Cluster(connection, retry_seconds=retry_seconds)) as opened:
            for name in ("", "urllib3", "client"):  # opening the client resets the latter two
                caplog.set_level(logging.DEBUG, logger=name)
            try:
                opened.list_trainjobs("default")
                opened.open_connection()
            except ClusterError as error:
                shown = "".join(traceback.format_exception(error))
                assert "401" in shown
                assert SECRET not in shown
    assert caplog.records
    assert laptop.token not in caplog.text
    assert SECRET not in caplog.text
    assert "authorization" not in caplog.text.lower()
    evidence(
        "security",
        check="every logger at DEBUG, tokens good and bad",
        result=f"{len(caplog.records)} records, none with a token",
    )


def test_the_password_in_a_servers_url_is_not_shown():
    """A kubeconfig may have a server with a password; errors show `***` instead."""
    content = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": f"http://user:{SECRET}@127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {}}],
    }
    with contextlib.closing(Cluster(Connection(kubeconfig_text=json.dumps(content)), retry_seconds=0.0)) as opened:
        with pytest.raises(ClusterUnreachable) as raised:
            opened.open_connection()
        assert "***@127.0.0.1" in str(raised.value)
        assert SECRET not in "".join(traceback.format_exception(raised.value))
        assert SECRET not in opened.server
