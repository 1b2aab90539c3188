"""`trainjob migrate` on a real control plane with Training Operator jobs: report, convert, run and compare.

The CRDs are the operator's own. The operator itself does not run: the test creates its pods and the job's status as the
operator does (training operator 1.9, pkg/controller.v1/pytorch/{pytorchjob_controller,envvar}.go and
pkg/controller.v1/common/pod.go).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from control_plane import ControlPlane
from tests.support.accounts import create_account, create_token, grant, kubeconfig_with_token, wait_until_allowed
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until

ROOT = Path(__file__).resolve().parents[3]
OPERATOR = "github.com/kubeflow/training-operator@v1.9.3"
CRDS = ("pytorchjobs", "mpijobs")
V1 = "/apis/kubeflow.org/v1"
SECRET = "hf_SecretThatIsNeverPrinted"
SECONDS = 60.0

pytestmark = [pytest.mark.timeout(300)]
if reason := ControlPlane.unavailable_reason("2.3"):
    pytestmark.append(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="module")
def crds(tmp_path_factory):
    """Return the operator's CRDs from its Go module, whose checksum Go verifies."""
    if not shutil.which("go"):
        pytest.skip("the operator's CRDs come from its Go module: install Go")
    command = ["go", "mod", "download", "-json", OPERATOR]
    found = subprocess.run(command, cwd=tmp_path_factory.mktemp("go"), capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    folder = Path(json.loads(found.stdout)["Dir"]) / "manifests" / "base" / "crds"
    return [yaml.load((folder / f"kubeflow.org_{name}.yaml").read_text(), yaml.CSafeLoader) for name in CRDS]


@pytest.fixture(scope="module")
def plane(tmp_path_factory, crds):
    with ControlPlane(tmp_path_factory.mktemp("plane")) as cluster:
        with contextlib.closing(Client.from_kubeconfig(str(cluster.kubeconfig))) as client:
            for crd in crds:
                answer = client.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
                assert answer.ok, answer.message
            wait_until(lambda: all(client.request("GET", f"{V1}/{name}").ok for name in CRDS), SECONDS)
        yield cluster


@pytest.fixture(scope="module")
def client(plane):
    with contextlib.closing(Client.from_kubeconfig(str(plane.kubeconfig))) as opened:
        yield opened


@pytest.fixture
def namespace(client, unique):
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    return unique


@pytest.fixture
def trainjob(plane):
    def run(*arguments, **options):
        command = [sys.executable, "-m", "trainjob", *arguments]
        environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "COLUMNS": "160"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, **options)

    return run


def v1_job(name, **pod):
    """Return a PyTorchJob of Master and Worker that print their rank and the world size."""
    script = "import os; print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'])"
    container = {
        "name": "pytorch",
        "image": "example.com/train:1",
        "command": ["python", "-c", script],
        "env": [{"name": "HF_TOKEN", "value": SECRET}, {"name": "EPOCHS", "value": "3"}],
        "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "1"}},
    }
    template = {"spec": {"containers": [container], **pod}}
    replica = {"replicas": 1, "restartPolicy": "Never", "template": template}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "pytorchReplicaSpecs": {"Master": replica, "Worker": replica},
        },
    }


def operator_pods(job):
    """Yield the pods that the operator creates for a job."""
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    for rank, (role, replica) in enumerate(job["spec"]["pytorchReplicaSpecs"].items()):
        spec = json.loads(json.dumps(replica["template"]["spec"]))
        own = {"PYTHONUNBUFFERED": "1", "MASTER_PORT": "23456", "PET_MASTER_PORT": "23456"}
        own |= dict.fromkeys(("MASTER_ADDR", "PET_MASTER_ADDR"), f"{name}-master-0")
        own |= {"WORLD_SIZE": "2", "RANK": str(rank), "PET_NODE_RANK": str(rank), "PET_NNODES": "2"}
        spec["containers"][0]["env"] += [{"name": key, "value": value} for key, value in own.items()]
        labels = {
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-type": role.lower(),
            "training.kubeflow.org/replica-index": "0",
        }
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": uid, "controller": True}
        metadata = {"name": f"{name}-{role.lower()}-0", "labels": labels, "ownerReferences": [owner]}
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, "restartPolicy": "Never"}}


def run_as_operator(client, namespace, document):
    """Create a job with its pods, wait for them, and write its status."""
    answer = client.request("POST", f"{V1}/namespaces/{namespace}/pytorchjobs", document, fieldValidation="Strict")
    assert answer.ok, answer.message
    for pod in operator_pods(answer.body):
        client.create(pod, namespace)
    wait_until(lambda: all(pod["status"].get("phase") == "Succeeded" for pod in client.list("Pod", namespace)), SECONDS)
    moment = {"lastTransitionTime": "2026-01-01T10:01:00Z", "lastUpdateTime": "2026-01-01T10:01:00Z", "status": "True"}
    conditions = [
        {"type": "Succeeded", "reason": "PyTorchJobSucceeded", "message": "successfully completed.", **moment}
    ]
    times = {"startTime": "2026-01-01T10:00:00Z", "completionTime": "2026-01-01T10:01:00Z"}
    status = {"status": {"conditions": conditions, **times}}
    path = f"{V1}/namespaces/{namespace}/pytorchjobs/{document['metadata']['name']}/status"
    answer = client.request("PATCH", path, status, content_type="application/merge-patch+json")
    assert answer.ok, answer.message


def test_existing_jobs_are_reported_converted_and_compared(trainjob, client, namespace):
    run_as_operator(client, namespace, v1_job("mnist"))
    report = trainjob("migrate", "report", "--from-cluster", "-n", namespace, "--json")
    found = json.loads(report.stdout)
    assert found["summary"]["jobs"] == 1
    assert found["summary"]["refused"] == 0
    assert found["jobs"][0]["origin"] == f"cluster, namespace {namespace}"
    assert {field["path"]: field["result"] for field in found["jobs"][0]["fields"]}["status"] == "dropped"
    assert "skipped: XGBoostJob, JAXJob, TFJob, PaddleJob: the cluster does not serve them" in report.stderr
    everywhere = json.loads(trainjob("migrate", "report", "--from-cluster", "-A", "--json").stdout)
    assert f"cluster, namespace {namespace}" in [one["origin"] for one in everywhere["jobs"]]

    converted = trainjob("migrate", "convert", "--from-cluster", "-n", namespace)
    assert converted.returncode == 0, converted.stderr
    for document in yaml.safe_load_all(converted.stdout):
        client.create(document)
    assert trainjob("wait", "mnist", "-n", namespace).returncode == 0

    compared = trainjob("migrate", "compare", "mnist", "-n", namespace, "--json")
    assert compared.returncode == 0, compared.stderr
    rows = {row["aspect"]: row for row in json.loads(compared.stdout)["rows"]}
    same = ("state", "exit codes", "pods", "world size", "image", "command", "requests", "limits", "env EPOCHS")
    assert {aspect: rows[aspect]["same"] for aspect in same} == dict.fromkeys(same, True)
    assert (rows["pods"]["before"], rows["pods"]["after"]) == ("Master 1, Worker 1", "node 2")
    assert (rows["exit codes"]["before"], rows["world size"]["before"]) == ("0", "2")
    assert rows["env RANK"]["before"] == "Master 0: 0, Worker 0: 1"
    assert rows["env RANK"]["after"].startswith("fieldRef ")
    assert (rows["env HF_TOKEN"]["before"], rows["env HF_TOKEN"]["same"]) == ("***", True)
    assert rows["from start to end"]["before"] == "0:01:00"

    table = trainjob("migrate", "compare", "mnist", "-n", namespace)
    assert "= env EPOCHS 3 3" in " ".join(table.stdout.split())
    assert not [line for line in table.stdout.splitlines() if line.startswith("!")]
    assert SECRET not in report.stdout + compared.stdout + table.stdout
    missing = trainjob("migrate", "compare", "mnits", "-n", namespace)
    assert (missing.returncode, missing.stdout) == (1, "")


def test_a_tested_job_is_deleted_with_its_runtime(trainjob, client, namespace, tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(v1_job("mnist", enableServiceLinks=False)))  # this field needs its own runtime
    done = trainjob("migrate", "test", str(file), "-n", namespace)
    assert done.returncode == 0, done.stderr
    assert "created with its TrainingRuntime" in done.stdout
    assert {"[node-0] rank 0 of 2", "[node-1] rank 1 of 2"} <= set(done.stdout.splitlines())
    wait_until(
        lambda: not any(client.list(kind, namespace) for kind in ("TrainJob", "TrainingRuntime", "Pod")), SECONDS
    )

    kept = trainjob("migrate", "test", "--keep", str(file), "-n", namespace)
    assert kept.returncode == 0, kept.stderr
    (made,) = client.list("TrainJob", namespace)
    (runtime,) = client.list("TrainingRuntime", namespace)
    assert runtime["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]
    client.delete("TrainJob", namespace, made["metadata"]["name"])  # its runtime is deleted with it
    wait_until(lambda: not client.list("TrainingRuntime", namespace), SECONDS)


def test_kinds_without_permission_are_reported(plane, trainjob, client, namespace, tmp_path):
    document = v1_job("mnist")
    document["spec"]["runPolicy"]["suspend"] = True
    answer = client.request("POST", f"{V1}/namespaces/{namespace}/pytorchjobs", document, fieldValidation="Strict")
    assert answer.ok, answer.message
    create_account(client, namespace)
    file, token = tmp_path / "kubeconfig", create_token(client, namespace)
    file.write_text(kubeconfig_with_token(str(plane.kubeconfig), token, namespace))
    nothing = trainjob("--kubeconfig", str(file), "migrate", "report", "--from-cluster")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    grant(client, namespace, [{"apiGroups": ["kubeflow.org"], "resources": ["pytorchjobs"], "verbs": ["list"]}])
    with contextlib.closing(client.with_token(token)) as bearer:
        wait_until_allowed(bearer, namespace, "list", "kubeflow.org", "pytorchjobs")
    some = trainjob("--kubeconfig", str(file), "migrate", "report", "--from-cluster", "--json")
    assert some.returncode == 0, some.stderr
    assert json.loads(some.stdout)["summary"]["jobs"] == 1
    assert "skipped: MPIJob, XGBoostJob, JAXJob, TFJob, PaddleJob: no permission to list them" in some.stderr
