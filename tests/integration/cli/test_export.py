"""Tests of `trainjob export`, with the name of a TrainJob or with a claim."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.integration.cli.bare_apiserver import bare_apiserver
from tests.support.export_runs import make_model, make_run
from trainjob import CustomTrainerContainer, FineTune, RunKey, TorchTuneConfig, TrainJob, TRLConfig
from trainjob.errors import InvalidSpec
from trainjob.inspection.model_location import find_model
from trainjob.lifecycle import submit, wait
from trainjob.manifest import build_trainjob, to_trainjob

pytestmark = pytest.mark.slow

COMPLETE_STATUS = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}


@pytest.fixture
def workspace(tmp_path):
    """Return a workspace with the output of a finished run of two epochs and its base model."""
    make_model(tmp_path / "workspace" / "model")
    make_run(tmp_path / "workspace" / "output" / "mine")
    return tmp_path / "workspace"


@pytest.fixture
def trained_job(cluster, workspace, unique):
    """Yield a complete TrainJob with TorchTune's command line and output."""
    words = ("sh", "-c", "exit 0", "tune", "run", "recipe", "output_dir=/workspace/output/mine")
    trainer = CustomTrainerContainer(image="busybox", command=words)
    job = TrainJob(trainer=trainer, workspace={"node_path": str(workspace)})
    reference = submit(cluster, job, RunKey("test", "export", unique, "run-1"))
    wait(cluster, reference)
    yield reference
    cluster.delete_trainjob(reference.name, reference.namespace, reference.uid)


def test_the_model_of_a_named_trainjob_is_exported(trained_job, trainjob, workspace):
    done = trainjob("export", trained_job.name, "/workspace/export", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["phase"] == "Complete"
    assert "export: done " in done.stderr
    manifest = json.loads((workspace / "export" / "manifest.json").read_text())
    assert "config.json" in json.dumps(manifest)


def test_output_yaml_for_a_claim_sends_nothing(tmp_path, trainjob):
    with bare_apiserver(tmp_path) as api_server:
        given = ("--workspace", "models", "--output-path", "mine", "s3://bucket/model", "--secret", "s3", "-o", "yaml")
        kept = trainjob("--kubeconfig", api_server.kubeconfig, "export", *given, "--adapter", "keep")
        done = trainjob("--kubeconfig", api_server.kubeconfig, "export", *given)
        from_image = ("--program", "image", "--image", "registry.example/steps:1")
        in_image = trainjob("--kubeconfig", api_server.kubeconfig, "export", *given, *from_image)
        no_image = trainjob("--kubeconfig", api_server.kubeconfig, "export", *given, "--program", "image")
        nothing = trainjob("--kubeconfig", api_server.kubeconfig, "export", "s3://bucket/model")
    assert done.returncode == 0, done.stderr
    [sent] = yaml.safe_load_all(done.stdout)
    assert sent["metadata"]["annotations"]["trainjob.dev/model"] == "s3://bucket/model"
    assert "models" in json.dumps(sent["spec"])
    [adapter] = yaml.safe_load_all(kept.stdout)
    [program] = yaml.safe_load_all(in_image.stdout)
    assert program["spec"]["trainer"]["image"] == "registry.example/steps:1"
    assert program["spec"]["trainer"]["command"][:3] == ["python", "-m", "trainjob.programs.export"]
    assert program["spec"]["trainer"]["args"] == sent["spec"]["trainer"]["args"]
    assert (no_image.returncode, "error: image is required" in no_image.stderr) == (2, True)
    with_adapter = [*sent["spec"]["trainer"]["args"], "--adapter", "keep"]
    assert sorted(adapter["spec"]["trainer"]["args"]) == sorted(with_adapter)
    assert (
        api_server.server.request_counts["create trainjobs"] == api_server.server.request_counts["post trainjobs"] == 0
    )
    assert (nothing.returncode, "give a TrainJob and a destination" in nothing.stderr) == (2, True)


@pytest.mark.parametrize(
    ("job", "why"),
    [
        ({}, "it is Pending"),
        (
            {**COMPLETE_STATUS, "spec": {"trainer": {"command": ["python", "train.py"]}}},
            "its command is not that of a known framework",
        ),
        (
            {
                **COMPLETE_STATUS,
                "spec": {"trainer": {"command": ["tune", "run"]}, "runtimeRef": {"name": "torchtune-x"}},
            },
            "was deleted",
        ),
        (
            {**COMPLETE_STATUS, "spec": {"trainer": {"command": ["tune"], "args": ["run", "output_dir=/tmp"]}}},
            "not below",
        ),
    ],
)
def test_a_trainjob_without_a_model_is_refused(cluster, job, why):
    meta = {"name": "none", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    with pytest.raises(InvalidSpec, match=why):
        find_model(cluster, {"metadata": meta, "spec": {}, **job})


def test_the_claim_of_a_built_in_run_is_found(cluster, unique):
    meta = {"name": f"initializer-{unique}", "namespace": "default"}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = cluster.create_claim({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
    job = {"metadata": {"name": unique, "namespace": "default"}, "spec": {"trainer": {"command": ["tune", "run"]}}}
    workspace, path = find_model(cluster, {**job, **COMPLETE_STATUS})
    assert (workspace.claim, path) == (f"initializer-{unique}", "")
    cluster.delete_claim(meta["name"], "default", made["metadata"]["uid"])


@pytest.mark.parametrize("config", [TorchTuneConfig(epochs=1), TRLConfig(method="sft")])
def test_the_output_of_a_fine_tuning_in_a_workspace_is_found(cluster, config):
    step = FineTune(model="llama3.2-1b", workspace="models", output_path="a/b", config=config)
    job = build_trainjob(to_trainjob(step, run="r"), name="none", namespace="default")
    workspace, path = find_model(cluster, {**job, **COMPLETE_STATUS})
    assert (workspace.claim, path) == ("models", "a/b")
