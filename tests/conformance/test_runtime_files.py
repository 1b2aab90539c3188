"""Files of `trainjob submit` and `trainjob run` that have a training runtime beside the TrainJob."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from tests.support import shipped_manifests
from tests.support.accounts import kubeconfig_with_token
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import IMAGE, shell, torch_runtime

MANAGED = {"trainer.kubeflow.org/framework": "torch", "app.kubernetes.io/managed-by": "trainjob"}


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
            timeout=300,
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


@pytest.fixture
def trainjob(target, namespace):
    """Return a function that runs a command without a file."""

    def run(*words, kubeconfig=target.kubeconfig):
        return subprocess.run(
            [sys.executable, "-m", "trainjob", *words, "-n", namespace],
            env={**os.environ, "KUBECONFIG": str(kubeconfig), "COLUMNS": "300"},
            capture_output=True,
            text=True,
            timeout=300,
        )

    return run


def submit_suspended(command, *documents):
    """Submit suspended jobs, and return their names."""
    jobs = [{**one, "spec": {**one["spec"], "suspend": True}} for one in documents if one["kind"] == "TrainJob"]
    done = command("submit", *[one for one in documents if one["kind"] != "TrainJob"], *jobs)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_runtime_is_deleted_with_its_last_job(client, namespace, command, trainjob):
    """`trainjob cancel --runtimes` deletes a created TrainingRuntime when no TrainJob uses it any more."""
    other = {**make_job(), "metadata": {"name": "other"}}
    names = submit_suspended(command, torch_runtime(), make_job(), other)
    first = trainjob("cancel", names[0], "--runtimes")
    assert first.returncode == 0, first.stderr
    assert f"TrainingRuntime {namespace}/own: unchanged: TrainJob {names[1]} uses it" in first.stdout
    assert client.find("TrainingRuntime", namespace, "own")
    last = trainjob("cancel", names[1], "--runtimes", "--json")
    assert last.returncode == 0, last.stderr
    found = [(one["kind"], one["name"], one["done"], one["reason"]) for one in json.loads(last.stdout)]
    assert found == [("TrainJob", names[1], "deleted", ""), ("TrainingRuntime", "own", "deleted", "")]
    client.wait_until_deleted("TrainingRuntime", namespace, "own")


def test_runtimes_of_others_are_not_deleted(client, namespace, command, trainjob):
    """`--runtimes` keeps a runtime that another tool created or applied, and a ClusterTrainingRuntime."""
    client.create(torch_runtime(), namespace)
    name = f"cluster-{namespace}"
    cluster_runtime = torch_runtime(kind="ClusterTrainingRuntime", name=name)
    applied = torch_runtime(name="applied")
    jobs = [make_job(), make_job("ClusterTrainingRuntime", name), make_job(name="applied")]
    jobs = [{**job, "metadata": {"name": f"job-{number}"}} for number, job in enumerate(jobs)]
    try:
        names = submit_suspended(command, torch_runtime(), cluster_runtime, applied, *jobs)
        kubectl = {"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}"}}}
        client.patch("TrainingRuntime", namespace, "applied", kubectl)
        cancelled, swept = trainjob("cancel", *names, "--runtimes"), trainjob("sweep", "--runtimes")
        assert (cancelled.returncode, swept.returncode, swept.stdout) == (0, 0, ""), cancelled.stderr + swept.stderr
        for kind, runtime, reason in (
            ("TrainingRuntime", f"{namespace}/own", "trainjob did not create it, or kubectl has applied it since"),
            ("ClusterTrainingRuntime", name, "it belongs to all namespaces"),
            ("TrainingRuntime", f"{namespace}/applied", "trainjob did not create it, or kubectl has applied it since"),
        ):
            assert f"{kind} {runtime}: unchanged: {reason}" in cancelled.stdout
        assert {one["metadata"]["name"] for one in client.list("TrainingRuntime", namespace)} == {"own", "applied"}
        assert client.request("GET", path_of("ClusterTrainingRuntime", None, name)).ok
    finally:
        client.request("DELETE", path_of("ClusterTrainingRuntime", None, name))


def test_a_sweep_deletes_unused_runtimes(client, namespace, command, trainjob):
    """`trainjob sweep --runtimes` deletes created runtimes without TrainJobs, those of the deleted ones included."""
    done = command("run", torch_runtime(), make_job())
    assert done.returncode == 0, done.stderr
    options = ["--finished-for", "0s"]
    assert f"TrainingRuntime {namespace}/own" not in trainjob("sweep", *options, "--dry-run").stdout
    unfinished = trainjob("sweep", "--runtimes")
    assert (unfinished.returncode, unfinished.stdout) == (0, ""), unfinished.stderr
    expected = f"TrainingRuntime {namespace}/own would be deleted: no TrainJob uses it"
    assert expected in trainjob("sweep", *options, "--runtimes", "--dry-run").stdout
    assert client.find("TrainingRuntime", namespace, "own")
    swept = trainjob("sweep", *options, "--runtimes")
    assert f"TrainingRuntime {namespace}/own deleted: no TrainJob uses it" in swept.stdout
    client.wait_until_deleted("TrainingRuntime", namespace, "own")
    assert list_jobs(client, namespace) == []


def test_without_permission_to_delete_runtimes(client, namespace, command, trainjob, target, tmp_path):
    """Without the permission to delete runtimes, the TrainJob is deleted, and the message names the permission."""
    names = submit_suspended(command, torch_runtime(), make_job())
    token = shipped_manifests.create_restricted_token(client, namespace, "person")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kubeconfig_with_token(target.kubeconfig, token, namespace))
    refused = trainjob("cancel", *names, "--runtimes", kubeconfig=kubeconfig)
    assert (refused.returncode, list_jobs(client, namespace)) == (1, [])
    assert f"TrainingRuntime {namespace}/own: failed: " in refused.stderr
    assert 'cannot delete resource "trainingruntimes"' in refused.stderr
    assert client.find("TrainingRuntime", namespace, "own")
    again = trainjob("sweep", "--runtimes")
    assert f"TrainingRuntime {namespace}/own deleted" in again.stdout, again.stderr


def test_sweeps_at_the_same_time(client, namespace, command, trainjob):
    """Two sweeps delete one runtime; that the other was first is no error."""
    client.create({**torch_runtime(), "metadata": {**torch_runtime()["metadata"], "labels": MANAGED}}, namespace)
    with ThreadPoolExecutor() as threads:
        done = list(threads.map(lambda _: trainjob("sweep", "--runtimes"), range(2)))
    assert [one.returncode for one in done] == [0, 0], [one.stderr for one in done]
    assert any(f"TrainingRuntime {namespace}/own deleted" in one.stdout for one in done)
    client.wait_until_deleted("TrainingRuntime", namespace, "own")


@pytest.mark.since("2.3")
def test_the_file_creates_a_deleted_runtime_again(client, namespace, command):
    """If the runtime of a TrainJob was deleted, the next submission creates it again and adopts the TrainJob."""
    names = submit_suspended(command, torch_runtime(), make_job())
    client.delete("TrainingRuntime", namespace, "own")
    assert submit_suspended(command, torch_runtime(), make_job()) == names
    assert client.find("TrainingRuntime", namespace, "own")


def test_the_printed_job_is_checked_against_the_files_runtime(client, namespace, command):
    """`-o yaml` needs no runtime in the cluster if the file has it; the TrainJob must fit that of the file."""
    done = command("submit", torch_runtime(), make_job(), options=["-o", "yaml"])
    assert done.returncode == 0, done.stderr
    runtime, job = yaml.safe_load_all(done.stdout)
    assert (runtime["kind"], job["spec"]["runtimeRef"]["name"]) == ("TrainingRuntime", "own")
    assert (list_jobs(client, namespace), client.find("TrainingRuntime", namespace, "own")) == ([], None)
    client.create(torch_runtime(), namespace)
    other = torch_runtime()
    [job] = other["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "main"
    refused = command("submit", other, make_job(), options=["-o", "yaml"])
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "and a container node, so image, command would have no effect" in refused.stderr
