"""Addresses as people write them: accepted, or refused with the form to write."""

from __future__ import annotations

import re

import pytest

from trainjob import InitializeDataset, InitializeModel, InvalidSpec
from trainjob.spec.initializers import HuggingFaceDatasetInitializer

ACCEPTED = {
    "hf://org/name@v1.2": ("hf://org/name", "v1.2"),
    "hf://org/name@main/data/en": ("hf://org/name/data/en", "main"),
    "hf://org/name@refs/pr/12": ("hf://org/name", "refs/pr/12"),
    "hf://org/name@refs/convert/parquet/default": ("hf://org/name/default", "refs/convert/parquet"),
    "hf://org/na.me-1_x": ("hf://org/na.me-1_x", None),
    "hf://org/name@refs%2Fpr%2F12": ("hf://org/name", "refs/pr/12"),
    "hf://datasets/org/name": ("hf://org/name", None),
    "hf://datasets/org/name@v1/data/en": ("hf://org/name/data/en", "v1"),
    "s3://bucket/a@b": ("s3://bucket/a@b", None),
    "az://container/path": ("az://container/path", None),
    "abfs://container/path": ("abfs://container/path", None),
    "abfss://c@account.dfs.core.windows.net/p": ("abfss://c@account.dfs.core.windows.net/p", None),
}
REFUSED = {
    "https://huggingface.co/datasets/org/name": "write it as hf://ORGANIZATION/NAME",
    "https://hf.co/org/name": "write it as hf://ORGANIZATION/NAME",
    "https://account.blob.core.windows.net/container/path": "write it as abfss://CONTAINER@ACCOUNT.dfs.core.windows.net",
    "wasbs://container@account.blob.core.windows.net/path": "write it as abfss://CONTAINER@ACCOUNT.dfs.core.windows.net",
    "abfss://workspace@onelake.dfs.fabric.microsoft.com/x": "write it as abfss://CONTAINER@ACCOUNT.dfs.core.windows.net",
    "az:///path": "nothing follows the scheme",
    "s3a://bucket/key": "write it as s3://BUCKET/PATH",
    "gcs://bucket/key": "write it as gs://BUCKET/PATH",
    "oci://registry.example/model:1": "an image registry is not supported: use a bucket",
    "hdfs://namenode/path": "HDFS is not supported",
    "ms://org/name": "ModelScope is not supported",
    "pvc://claim/path": "give it as the workspace of the steps",
    "ftp://host/path": "allowed are hf://",
    "hf://org/na--me": "no '--' or '..'",
    "hf://org/name.git": "names have letters",
    "hf://org/-name": "names have letters",
    "hf://org/name?revision=v1": "write a revision as hf://ORGANIZATION/NAME@REVISION",
    "hf://org/name/tree/main": "write a revision as hf://ORGANIZATION/NAME@REVISION",
    "hf://spaces/org/name": "it must be the repository of a",
    f"hf://org/{'n' * 100}": "at most 96 characters",
}


@pytest.mark.parametrize(("uri", "expected"), ACCEPTED.items())
def test_a_revision_in_the_address_is_the_steps_revision(uri, expected):
    step = InitializeDataset(storage_uri=uri, workspace="w")
    assert (step.storage_uri, step.revision) == expected


@pytest.mark.parametrize("kind", [InitializeDataset, InitializeModel])
@pytest.mark.parametrize(("uri", "text"), REFUSED.items())
def test_another_address_is_refused_with_the_form_to_write(kind, uri, text):
    with pytest.raises(InvalidSpec, match=f"storage_uri cannot be .*{re.escape(text)}"):
        kind(storage_uri=uri, workspace="w")


def test_two_revisions_are_refused():
    with pytest.raises(InvalidSpec, match=r"revision cannot be .*the address has the revision v1: give one"):
        InitializeModel(storage_uri="hf://org/name@v1", revision="v2", workspace="w")
    assert InitializeModel(storage_uri="hf://org/name@v1", revision="v1", workspace="w").revision == "v1"


def test_the_trainers_initializers_have_no_revision():
    with pytest.raises(InvalidSpec, match="storage_uri"):
        HuggingFaceDatasetInitializer(storage_uri="hf://org/name@v1")


@pytest.mark.parametrize(
    "uri", ["abfss://me:hunter2@account.dfs.core.windows.net/x", "https://me:hunter2@hf.co/org/name"]
)
def test_a_refusal_shows_no_password(uri):
    with pytest.raises(InvalidSpec) as refused:
        InitializeModel(storage_uri=uri, workspace="w")
    assert "hunter2" not in str(refused.value)
