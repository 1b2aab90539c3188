"""Validation of the steps that fetch, and the variables and arguments of their containers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainjob.errors import InvalidSpec
from trainjob.manifest import Dialect, build_trainjob, to_trainjob
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
    [
        ("s3", {"ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"}),
        ("gs", {"GOOGLE_CREDENTIALS"}),
        ("https", {"ACCESS_TOKEN"}),
    ],
)
def test_a_store_gets_its_own_keys_of_the_secret_and_no_revision(scheme, known):
    trainer = build_trainer(InitializeDataset(storage_uri=f"{scheme}://b/x", workspace="w", secret="s"))
    assert "REVISION" not in [variable["name"] for variable in trainer["env"]]
    keys = {variable["valueFrom"]["secretKeyRef"]["key"] for variable in trainer["env"] if "valueFrom" in variable}
    assert keys == known


def build_pods(step, dialect=Dialect.V2_2):
    """Return the pod's parts in the patches of a step's TrainJob."""
    patches = build_trainjob(to_trainjob(step), name="n", namespace="ns", dialect=dialect)["spec"]["runtimePatches"]
    jobs = [patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"] for patch in patches]
    return [job["template"]["spec"]["template"]["spec"] for [job] in jobs]


@pytest.mark.parametrize(
    ("uri", "source"),
    [
        ("pvc://data/a/b", {"persistentVolumeClaim": {"claimName": "data"}}),
        ("pvc://data", {"persistentVolumeClaim": {"claimName": "data"}}),
        ("oci://r.example/a/b:1", {"image": {"reference": "r.example/a/b:1"}}),
        (f"oci://r.example/a@sha256:{'0' * 64}", {"image": {"reference": f"r.example/a@sha256:{'0' * 64}"}}),
    ],
)
def test_a_claim_or_an_image_is_mounted_as_a_whole_and_read_only(uri, source):
    step = InitializeDataset(storage_uri=uri, workspace="w", placement={"image_pull_secrets": ["registry"]})
    assert build_trainer(step)["args"][-2:] == ["--source", "/mnt/trainjob-source"]
    [pod] = build_pods(step)
    claim = {"name": "workspace", "persistentVolumeClaim": {"claimName": "w"}}
    assert pod["volumes"] == [claim, {"name": "trainjob-source", **source}]
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": "workspace", "mountPath": "/workspace"},
        {"name": "trainjob-source", "mountPath": "/mnt/trainjob-source", "readOnly": True},
    ]
    assert pod["imagePullSecrets"] == [{"name": "registry"}]


def test_the_claim_of_the_workspace_is_mounted_twice_as_one_volume():
    step = InitializeDataset(storage_uri="pvc://w/shared", workspace={"claim": "w", "sub_path": "team"})
    first, second = build_pods(step)
    assert first["volumes"] == [{"name": "workspace", "persistentVolumeClaim": {"claimName": "w"}}]
    assert "volumes" not in second
    assert [pod["containers"][0]["volumeMounts"] for pod in (first, second)] == [
        [{"name": "workspace", "mountPath": "/workspace", "subPath": "team"}],
        [{"name": "workspace", "mountPath": "/mnt/trainjob-source", "readOnly": True}],
    ]
    with pytest.raises(InvalidSpec, match=r"workspace, several times.*needs Trainer 2.1 or later"):
        build_pods(step, Dialect.V2_0)


@pytest.mark.parametrize("field", ["name", "mount_path"])
def test_a_volume_in_the_place_of_the_source_is_refused(field):
    volume = {"name": "own", "source": {"emptyDir": {}}, "mount_path": "/own"}
    taken = {"name": "trainjob-source", "mount_path": "/mnt/trainjob-source"}
    step = InitializeDataset(storage_uri="pvc://data", workspace="w", volumes=[{**volume, field: taken[field]}])
    with pytest.raises(InvalidSpec, match=rf"volumes\[1\].{field} cannot be .*: choose another"):
        build_trainer(step)


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
