"""The runtimes of manifests/runtimes in a namespace that enforces the Pod Security Standard `restricted`."""

from __future__ import annotations

import pytest
import yaml

from tests.conformance.backends import ROOT
from tests.conformance.runtimes import create_runtime
from tests.support.trainjobs import IMAGE, list_pods
from trainjob import CustomTrainerContainer, Placement, PodSecurityContext, RunKey, Runtime, TrainJob
from trainjob.lifecycle import submit, wait
from trainjob.status import Phase

FILES = [path for path in sorted((ROOT / "manifests" / "runtimes").glob("*.yaml")) if path.stem != "kustomization"]
TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"

pytestmark = [pytest.mark.since("2.2"), pytest.mark.only("controlplane")]


def read_runtime(name):
    return yaml.safe_load((ROOT / "manifests" / "runtimes" / f"{name}.yaml").read_text())["spec"]


@pytest.fixture
def restricted(client, namespace):
    """Return a namespace that refuses pods that are not restricted."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    client.request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    return namespace


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_the_pods_of_each_runtime_are_admitted_without_a_token(client, restricted, name):
    jobs = read_runtime(name)["template"]["spec"]["replicatedJobs"]
    assert jobs
    for job in jobs:
        spec = {"restartPolicy": "Never", **job["template"]["spec"]["template"]["spec"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": job["name"]}, "spec": spec}
        made = client.request("POST", f"/api/v1/namespaces/{restricted}/pods", pod, dryRun="All")
        assert made.code == 201, made.body
        for container in made.body["spec"]["containers"]:
            assert TOKEN_FOLDER not in [mount["mountPath"] for mount in container.get("volumeMounts", ())]


def test_a_training_runs_where_only_restricted_pods_may(client, cluster, restricted, unique):
    create_runtime(client, restricted, read_runtime("torch-restarting"), "torch-restarting")
    trainer = CustomTrainerContainer(image=IMAGE, command=["true"])
    job = TrainJob(trainer=trainer, runtime=Runtime(name="torch-restarting", kind="TrainingRuntime"))
    reference = submit(cluster, job, RunKey("conformance", "security", unique, "run-1"))
    assert wait(cluster, reference).phase is Phase.COMPLETE


def test_an_image_may_run_as_root_if_the_step_says_so(client, cluster, namespace, unique):
    create_runtime(client, namespace, read_runtime("torch-restarting"), "torch-restarting")
    job = TrainJob(
        trainer=CustomTrainerContainer(image=IMAGE, command=["true"]),
        runtime=Runtime(name="torch-restarting", kind="TrainingRuntime"),
        placement=Placement(security_context=PodSecurityContext(run_as_user=0, run_as_non_root=False)),
    )
    reference = submit(cluster, job, RunKey("conformance", "security", unique, "run-1"))
    assert wait(cluster, reference).phase is Phase.COMPLETE
    [pod] = list_pods(client, namespace, reference.name)
    context = pod["spec"]["securityContext"]
    assert (context["runAsUser"], context["runAsNonRoot"]) == (0, False)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
