"""Validation of the steps that fetch, and the variables and arguments of their containers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainjob.errors import InvalidSpec
from trainjob.manifest import build_trainjob, to_trainjob
from trainjob.spec import InitializeDataset, InitializeModel


def build_trainer(step):
    return build_trainjob(to_trainjob(step), name="n", namespace="ns")["spec"]["trainer"]


@pytest.mark.parametrize(
    ("uri", "revision", "message"),
    [
        ("s3://b/x", "v1", "revision cannot be 'v1': only a repository on the Hub has revisions"),
        ("hf://o/n", "", "it must be a branch, a tag or a commit"),
        ("hf://o/n", "--upload-pack=x", "it must be a branch, a tag or a commit"),
        ("hf://o/n", "a b", "it must be a branch, a tag or a commit"),
    ],
)
def test_an_invalid_revision_is_refused(uri, revision, message):
    for step in (InitializeDataset, InitializeModel):
        with pytest.raises(InvalidSpec) as refused:
            step(storage_uri=uri, workspace="w", revision=revision)
        assert message in str(refused.value)


@pytest.mark.parametrize("kind", ["dataset", "model"])
def test_the_container_gets_upstreams_variables_and_the_revision(kind):
    step = {"dataset": InitializeDataset, "model": InitializeModel}[kind]
    trainer = build_trainer(
        step(storage_uri="hf://o/n", workspace="w", revision="refs/pr/1", ignore_patterns=["*.bin"])
    )
    env = {variable["name"]: variable["value"] for variable in trainer["env"]}
    assert env == {"STORAGE_URI": "hf://o/n", "IGNORE_PATTERNS": "*.bin", "REVISION": "refs/pr/1"}
    assert trainer["args"] == ["--kind", kind, "--folder", f"/workspace/{kind}"]
    assert f"/{kind}-initializer:" in trainer["image"]


@pytest.mark.parametrize(
    ("scheme", "known"),
    [("s3", {"ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"}), ("gs", {"GOOGLE_CREDENTIALS"})],
)
def test_a_store_gets_its_own_keys_of_the_secret_and_no_revision(scheme, known):
    trainer = build_trainer(InitializeDataset(storage_uri=f"{scheme}://b/x", workspace="w", secret="s"))
    assert "REVISION" not in [variable["name"] for variable in trainer["env"]]
    keys = {variable["valueFrom"]["secretKeyRef"]["key"] for variable in trainer["env"] if "valueFrom" in variable}
    assert keys == known


def test_the_program_gets_the_name_of_the_secret_and_its_keys():
    trainer = build_trainer(InitializeModel(storage_uri="hf://o/n", workspace="w", secret="hub"))
    assert trainer["args"][-4:] == ["--secret", "hub", "ACCESS_TOKEN", "HF_TOKEN"]


@pytest.mark.parametrize(
    "secret", [None, {"name": "hub", "keys": {"ACCESS_TOKEN": "token"}}], ids=["no Secret", "named keys"]
)
def test_the_program_checks_no_secret_that_the_kubelet_checks(secret):
    trainer = build_trainer(InitializeModel(storage_uri="hf://o/n", workspace="w", secret=secret))
    assert "--secret" not in trainer["args"]


def test_the_content_of_a_key_file_is_refused_as_a_plain_value_and_its_path_is_accepted():
    with pytest.raises(InvalidSpec, match=r"env.GOOGLE_CREDENTIALS cannot be \*\*\*: a credential must be a ref"):
        InitializeDataset(storage_uri="gs://b/x", workspace="w", env={"GOOGLE_CREDENTIALS": "{}"})
    mounted = {"GOOGLE_APPLICATION_CREDENTIALS": "/var/run/google/key.json"}
    trainer = build_trainer(InitializeDataset(storage_uri="gs://b/x", workspace="w", env=mounted))
    assert {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": "/var/run/google/key.json"} in trainer["env"]


def test_the_program_gets_what_to_prepare_as_arguments():
    step = InitializeDataset(
        storage_uri="hf://o/n",
        workspace="w",
        secret="hub",
        subset="my $(A)",
        split="train[:5000]",
        eval_fraction=0.05,
        columns={"prompt": "$(B) é", "completion": "answer"},
    )
    assert build_trainer(step)["args"][4:] == [
        *("--subset", "my $$(A)", "--split", "train[:5000]", "--eval-fraction", "0.05"),
        *("--columns", '{"completion": "answer", "prompt": "$$(B) \\u00e9"}'),
        *("--secret", "hub", "ACCESS_TOKEN", "HF_TOKEN"),
    ]


@pytest.mark.parametrize(
    "step",
    [
        InitializeModel(storage_uri="hf://o/n", workspace="w"),
        InitializeDataset(storage_uri="hf://o/n", workspace="w", split="train"),
    ],
    ids=["a model", "a dataset with prepared rows"],
)
def test_the_packed_fetch_runs_with_python_alone(tmp_path, step):
    trainer = build_trainer(step)
    assert max(map(len, trainer["command"])) <= 65_536  # Trainer 2.2's limit for an item
    command = [sys.executable, "-I", *trainer["command"][1:], "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "--folder" in done.stdout
