"""Addresses as people write them: accepted, or refused with the form to write."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob import ExportModel, InitializeDataset, InitializeModel, Initializer, InvalidSpec
from trainjob.addresses import parse_source
from trainjob.spec.initializers import HuggingFaceDatasetInitializer

HEX = "0a" * 32
PINNED = f"oci://registry.example/team/model@sha256:{HEX}"
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
    "https://data.example/a%20b.csv?version=2": ("https://data.example/a%20b.csv?version=2", None),
    f"https://data.example/rows.jsonl#sha256={HEX}": (f"https://data.example/rows.jsonl#sha256={HEX}", None),
    f"http://files.team.svc/rows.jsonl#sha256={HEX}": (f"http://files.team.svc/rows.jsonl#sha256={HEX}", None),
    **{uri: (uri, None) for uri in ("pvc://claim", "pvc://claim/", "pvc://my.claim-1/a b/snapshots/0a1b")},
    **{uri: (uri, None) for uri in ("oci://r.example/model", "oci://localhost:5000/a/b_c:v1.0-x", PINNED)},
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
    "hdfs://namenode/path": "HDFS is not supported",
    "ms://org/name": "ModelScope is not supported",
    "pvc://Claim/path": "it must be pvc://CLAIM/PATH, with the name of a PersistentVolumeClaim",
    "pvc://claim/../path": "it must not contain '..'",
    "oci://model:1": "it must be oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST",
    "oci://registry.example/model:1/path": "it must be oci://REGISTRY/REPOSITORY:TAG",
    f"oci://registry.example/model:1@sha256:{HEX}": "it must be oci://REGISTRY/REPOSITORY:TAG",
    "oci://registry.example/Model": "it must be oci://REGISTRY/REPOSITORY:TAG",
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


REFUSED_FILES = {
    "https://data.example": "it must name one file: https://HOST/PATH/FILE",
    "https://data.example/rows/": "it must name one file: https://HOST/PATH/FILE",
    "https://data.example/rows#part": "only #sha256=HEX, with 64 digits, may follow the path",
    f"https://data.example/rows#sha256={HEX[1:]}": "only #sha256=HEX, with 64 digits, may follow the path",
    "http://data.example/rows": "write it as https://, or with #sha256=HEX at its end",
    "https://data.example/ü.csv": "write blanks and letters outside ASCII percent-encoded",
    "https://data.example/a b.csv": "write blanks and letters outside ASCII percent-encoded",
    **{
        f"https://data.example/rows?a=b&{name}=0123abcd": "it must not be a signed URL"
        for name in (
            "X-Amz-Signature",
            "X-Goog-Signature",
            "Signature",
            "sig",
            "token",
            "access_token",
            "X-Amz-Credential",
        )
    },
}


@pytest.mark.parametrize(("uri", "text"), REFUSED_FILES.items())
def test_an_address_of_a_web_server_is_refused_with_its_rule(uri, text):
    with pytest.raises(InvalidSpec, match=f"storage_uri cannot be .*{re.escape(text)}") as refused:
        InitializeDataset(storage_uri=uri, workspace="w")
    assert "0123abcd" not in str(refused.value)


def test_a_model_is_no_file_of_a_web_server():
    with pytest.raises(InvalidSpec, match="a web server has no list of them: use hf://, s3://, oci:// or pvc://"):
        InitializeModel(storage_uri="https://data.example/model.safetensors", workspace="w")


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        (PINNED, "only InitializeDataset and InitializeModel read an image: use a bucket, the Hub, or the workspace"),
        ("pvc://claim/path", "read a PersistentVolumeClaim: give it as the workspace of the steps"),
        ("https://data.example/path", "allowed are hf://"),
    ],
)
def test_such_an_address_is_no_destination_and_no_source_of_the_trainers_initializers(uri, text):
    with pytest.raises(InvalidSpec, match=f"destination cannot be .*{re.escape(text)}"):
        ExportModel(destination=uri, workspace="w")
    with pytest.raises(InvalidSpec, match=f"storage_uri cannot be .*{re.escape(text)}"):
        Initializer(dataset=uri)


@pytest.mark.parametrize(
    ("uri", "fields", "text"),
    [
        ("pvc://claim/a", {"secret": "s"}, "secret cannot be .*files of a PersistentVolumeClaim need no credentials"),
        (PINNED, {"secret": "s"}, "secret cannot be .*name its pull secret in placement.image_pull_secrets"),
        (f"http://h/a#sha256={HEX}", {"secret": "s"}, "secret cannot be .*a token must not be sent without TLS"),
        ("https://h/a", {"endpoint": "https://h"}, "endpoint cannot be .*it is only for stores"),
        ("pvc://claim/a", {"region": "eu"}, "region cannot be .*it is only for stores"),
        (PINNED, {"role_arn": "arn"}, "role_arn cannot be .*it is only for stores"),
        (PINNED, {"revision": "v1"}, "revision cannot be .*only a repository on the Hub has revisions"),
    ],
)
def test_a_field_that_a_source_does_not_have_is_refused(uri, fields, text):
    with pytest.raises(InvalidSpec, match=text):
        InitializeDataset(storage_uri=uri, workspace="w", **fields)


@pytest.mark.parametrize(
    ("path", "sub_path", "accepted"),
    [
        ("", "", False),
        ("dataset", "", False),
        ("dataset/train", "", False),
        ("team", "team/a", False),
        ("team/a/dataset", "team/a", False),
        ("model", "", True),
        ("datasets", "", True),
        ("dataset", "team/a", True),
    ],
)
def test_a_fetch_from_its_own_folder_is_refused(path, sub_path, accepted):
    def create(claim):
        return InitializeDataset(storage_uri=f"pvc://w/{path}", workspace={"claim": claim, "sub_path": sub_path})

    create("other")
    if accepted:
        create("w")
        return
    with pytest.raises(InvalidSpec, match=r"storage_uri cannot be .*the step itself writes to /.*dataset"):
        create("w")


SCHEMES = st.sampled_from(["https", "http", "pvc", "oci"])
PARTS = st.sampled_from(["a", "A", "b-c", "..", ".", "", "%2e", "@", ":", "#", "?", f"#sha256={HEX}", f"@sha256:{HEX}"])


@given(SCHEMES, st.lists(PARTS | st.text(max_size=3), max_size=6), st.sampled_from(["", "/"]))
def test_the_parts_of_any_accepted_address(scheme, parts, separator):
    uri = f"{scheme}://{separator.join(parts)}"
    try:
        address = parse_source(uri, "dataset")
    except InvalidSpec:
        return
    assert address.scheme == scheme
    assert address.bucket
    assert ".." not in address.path.split("/")
    assert not address.path.startswith("/")
    if scheme == "pvc":
        assert uri.rstrip("/") == f"pvc://{address.bucket}/{address.path}".rstrip("/")
    elif scheme == "oci":
        assert uri == f"oci://{address.bucket}"
    else:
        assert address.path
        assert scheme == "https" or address.revision == HEX
        assert len(address.revision) in (0, 64)
