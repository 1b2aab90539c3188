"""Tests of Trainer's webhooks and of defaults, with the messages of the real Trainer 2.3.0."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from tests.support.trainjobs import torch_runtime
from trainjob_local import defaults, runtime_admission, trainjob_admission
from trainjob_local.apiserver import Registry, StatusError
from trainjob_local.runtimes import stock_runtimes

TORCH = "torch-distributed"
NOW = datetime(2026, 1, 31, 12, 0, 0, tzinfo=timezone.utc)


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry(clock):
    registry = Registry(clock=clock)
    defaults.register_defaults(registry)
    trainjob_admission.register_webhooks(registry, clock=clock)
    runtime_admission.register_webhooks(registry)
    for runtime in stock_runtimes():
        registry.create("clustertrainingruntimes", runtime)
    yield registry
    registry.close()


def trainjob(runtime=TORCH, *, kind=None, spec=None, **trainer):
    reference = {"name": runtime, **({"kind": kind} if kind else {})}
    body = {"runtimeRef": reference, **({"trainer": trainer} if trainer else {}), **(spec or {})}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "r1"}, "spec": body}


def test_a_job_of_a_deleted_runtime_can_be_deleted_but_not_changed(registry):
    registry.create("trainjobs", trainjob(command=["x"]), "default")
    registry.delete("clustertrainingruntimes", TORCH)
    with pytest.raises(StatusError, match="not found"):
        registry.patch("trainjobs", "r1", {"spec": {"suspend": True}}, "default")
    registry.delete("trainjobs", "r1", "default")


@pytest.mark.parametrize(("policy", "noun"), [("mpi", "MPI"), ("flux", "Flux")])
@pytest.mark.parametrize("kind", ["TrainingRuntime", "ClusterTrainingRuntime"])
def test_runtimes_of_mpi_and_flux_are_refused(registry, kind, policy, noun):
    """Their TrainJobs would run wrongly: MPI without a hostfile, and with as many launchers as nodes."""
    runtime, plural, namespace = torch_runtime(kind=kind), f"{kind.lower()}s", "default" * (kind == "TrainingRuntime")
    runtime["spec"]["mlPolicy"] = {"numNodes": 2, policy: {}}
    runtime["metadata"]["labels"]["trainer.kubeflow.org/webhook-validation"] = "disabled"
    with pytest.raises(StatusError) as refused:
        registry.create(plural, runtime, namespace)
    text = f"spec.mlPolicy.{policy}: Forbidden: the laptop cluster runs no {noun}: use a real cluster"
    assert (refused.value.code, refused.value.message.endswith(f"denied the request: {text}")) == (403, True)
    created = registry.create(plural, torch_runtime(kind=kind), namespace)
    with pytest.raises(StatusError, match=f"the laptop cluster runs no {noun}"):
        registry.patch(plural, "own", {"spec": {"mlPolicy": {"torch": None, policy: {}}}}, namespace)
    assert registry.get(plural, "own", namespace)["spec"] == created["spec"]


# -- defaults of the API server and of JobSet's webhooks --------------------------------------------------------------


def test_pods_get_their_defaults(registry):
    container = {"name": "c", "image": "repo:5000/i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    meta = {"name": "p", "annotations": {"jobset.sigs.k8s.io/jobset-name": "j"}}
    pod = registry.create("pods", {"metadata": meta, "spec": {"containers": [container]}}, "default")
    spec = pod["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    assert (spec["serviceAccountName"], spec["priority"]) == ("default", 0)
    assert spec["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    assert spec["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["metadata"]["labels"] == {"jobset.sigs.k8s.io/priority": "0"}
    assert pod["status"]["phase"] == "Pending"


def test_a_pod_needs_its_service_account(registry):
    pod = {
        "metadata": {"name": "p"},
        "spec": {"serviceAccountName": "nope", "containers": [{"name": "c", "image": "i"}]},
    }
    with pytest.raises(StatusError) as caught:
        registry.create("pods", pod, "default")
    expected = 'pods "p" is forbidden: error looking up service account default/nope: serviceaccount "nope" not found'
    assert caught.value.message == expected


def test_claims_get_the_protection_finalizer(registry):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = registry.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec}, "default")
    assert claim["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert (claim["spec"]["storageClassName"], claim["spec"]["volumeMode"]) == ("local-directory", "Filesystem")


def test_claim_policies_of_a_jobset_are_immutable(registry):
    policies = [{"templates": [{"metadata": {"name": "initializer"}, "spec": {}}]}]
    container = {"name": "node", "volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}]}
    node = {"name": "node", "template": {"spec": {"template": {"spec": {"containers": [container]}}}}}
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "j"},
        "spec": {"replicatedJobs": [node], "volumeClaimPolicies": policies},
    }
    created = registry.create("jobsets", jobset, "default")
    assert created["spec"]["volumeClaimPolicies"][0]["retentionPolicy"] == {"whenDeleted": "Delete"}
    with pytest.raises(StatusError) as caught:
        registry.patch("jobsets", "j", {"spec": {"volumeClaimPolicies": policies}}, "default")
    expected = 'JobSet.jobset.x-k8s.io "j" is invalid: spec.volumeClaimPolicies: Invalid value: Value is immutable'
    assert (caught.value.status, caught.value.message) == (422, expected)
