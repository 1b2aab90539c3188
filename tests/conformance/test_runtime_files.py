"""Files of `trainjob submit` and `trainjob run` that have a training runtime beside the TrainJob."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import yaml

from tests.support import shipped_manifests
from tests.support.accounts import kubeconfig_with_token
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import IMAGE, shell, torch_runtime

pytestmark = [pytest.mark.timeout(300)]


@pytest.fixture
def command(target, namespace, tmp_path):
    """Return a function that writes a file with the documents, and runs a command with it."""

    def run(name, *documents, options=(), kubeconfig=target.kubeconfig):
        file = tmp_path / "job with runtime.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        return subprocess.run(
            [sys.executable, "-m", "trainjob", name, str(file), "-n", namespace, *options],
            env={**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "300"},
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


def make_job(kind="TrainingRuntime", name="own"):
    return shell("echo trained", runtime=name, kind=kind)


def list_jobs(client, namespace):
    return client.list("TrainJob", namespace)


def test_a_runtime_in_the_file_is_created_once(client, namespace, command):
    """A TrainingRuntime in the file of `trainjob run` is created before the TrainJob; an equal one stays unchanged."""
    first = command("run", torch_runtime(), make_job())
    assert (first.returncode, "trained" in first.stdout) == (0, True), first.stderr
    assert f"TrainingRuntime {namespace}/own: created" in first.stderr
    version = client.get("TrainingRuntime", namespace, "own")["metadata"]["resourceVersion"]
    again = command("submit", torch_runtime(), make_job())
    assert (again.returncode, "TrainingRuntime" in again.stderr) == (0, False), again.stderr
    assert client.get("TrainingRuntime", namespace, "own")["metadata"]["resourceVersion"] == version


def test_a_different_runtime_is_replaced_only_on_request(client, namespace, command):
    """A TrainingRuntime that differs is shown as a diff, and nothing is created; `--apply-runtimes` replaces it."""
    client.create(torch_runtime("example.com/old:1"), namespace)
    refused = command("submit", torch_runtime(), make_job())
    assert (refused.returncode, list_jobs(client, namespace)) == (2, [])
    assert f"TrainingRuntime {namespace}/own" in refused.stderr
    for line in ('-                      "image": "example.com/old:1",', "use --apply-runtimes"):
        assert " ".join(line.split()) in " ".join(refused.stderr.split())
    accepted = command("submit", torch_runtime(), make_job(), options=["--apply-runtimes"])
    assert (accepted.returncode, len(list_jobs(client, namespace))) == (0, 1), accepted.stderr
    assert f"TrainingRuntime {namespace}/own: replaced" in accepted.stderr
    spec = client.get("TrainingRuntime", namespace, "own")["spec"]["template"]["spec"]["replicatedJobs"][0]
    assert spec["template"]["spec"]["template"]["spec"]["containers"][0]["image"] == IMAGE


def test_labels_of_others_do_not_count(client, namespace, command):
    """Labels and annotations that only the runtime of the cluster has are no difference, and stay."""
    runtime = torch_runtime()
    runtime["metadata"] |= {"labels": {**runtime["metadata"]["labels"], "team": "a"}, "annotations": {"note": "b"}}
    client.create(runtime, namespace)
    assert command("submit", torch_runtime(), make_job()).returncode == 0
    changed = torch_runtime()
    changed["spec"]["mlPolicy"]["numNodes"] = 2
    assert command("submit", changed, make_job(), options=["--apply-runtimes"]).returncode == 0
    metadata = client.get("TrainingRuntime", namespace, "own")["metadata"]
    assert (metadata["labels"]["team"], metadata["annotations"]["note"]) == ("a", "b")


def test_the_runtime_of_the_cluster(client, namespace, command):
    """A ClusterTrainingRuntime in the file is created, too."""
    name = f"cluster-{namespace}"
    runtime, job = torch_runtime(kind="ClusterTrainingRuntime", name=name), make_job("ClusterTrainingRuntime", name)
    try:
        done = command("submit", runtime, job)
        assert (done.returncode, len(list_jobs(client, namespace))) == (0, 1), done.stderr
    finally:
        client.request("DELETE", path_of("ClusterTrainingRuntime", None, name))


def test_without_permission_to_create_runtimes(client, namespace, command, target, tmp_path):
    """Without permission to create runtimes, the message has the kubectl command; after it, the file is accepted."""
    token = shipped_manifests.create_restricted_token(client, namespace, "person")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kubeconfig_with_token(target.kubeconfig, token, namespace))
    refused = command("submit", torch_runtime(), make_job(), kubeconfig=kubeconfig)
    assert (refused.returncode, list_jobs(client, namespace)) == (1, [])
    advice = f"kubectl apply -n {namespace} -f '{tmp_path}/job with runtime.yaml' -l trainer.kubeflow.org/framework"
    assert advice in " ".join(refused.stderr.split())
    client.create(torch_runtime(), namespace)
    accepted = command("submit", torch_runtime(), make_job(), kubeconfig=kubeconfig)
    assert (accepted.returncode, len(list_jobs(client, namespace))) == (0, 1), accepted.stderr
    assert "not compared" in accepted.stderr


@pytest.mark.differs("laptop", "the laptop cluster does not validate the fields of a runtime's spec")
def test_a_runtime_that_the_api_server_refuses(client, namespace, command):
    """An unknown field of the runtime is refused by the API server, and nothing is created."""
    runtime = torch_runtime()
    runtime["spec"]["policy"] = 1
    refused = command("submit", runtime, make_job())
    assert (refused.returncode, list_jobs(client, namespace)) == (2, [])
    assert "spec.policy" in refused.stderr
