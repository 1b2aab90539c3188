"""Trainer's webhooks in front of the registry: the texts the real Trainer 2.3.0 gave."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from trainjob.local import admission, defaults
from trainjob.local.apiserver import Refusal, Registry
from trainjob.local.runtimes import stock_runtimes

LLAMA, QWEN, TORCH = "torchtune-llama3.2-1b", "torchtune-qwen2.5-1.5b", "torch-distributed"
REF = '{"name":"torch-distributed","apiGroup":"trainer.kubeflow.org","kind":"ClusterTrainingRuntime"}'
DENIED = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
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
    defaults.register(registry)
    admission.register(registry, clock=clock)
    for runtime in stock_runtimes():
        registry.create("clustertrainingruntimes", runtime)
    yield registry
    registry.close()


def trainjob(runtime=TORCH, *, kind=None, spec=None, **trainer):
    reference = {"name": runtime, **({"kind": kind} if kind else {})}
    body = {"runtimeRef": reference, **({"trainer": trainer} if trainer else {}), **(spec or {})}
    return {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": "r1"}, "spec": body}


def tune(runtime, *args, **trainer):
    return trainjob(runtime, command=["tune", "run"], args=list(args), **trainer)


def patched(pod=None, manager="example.org/x"):
    jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod or {}}}}}]
    patch = {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
    return trainjob(command=["x"], spec={"runtimePatches": [patch]})


REFUSED = {
    "missing runtime": (
        trainjob("nope"),
        (
            'spec.RuntimeRef: Invalid value: {"name":"nope","apiGroup":"trainer.kubeflow.org",'
            '"kind":"ClusterTrainingRuntime"}: '
            'ClusterTrainingRuntime.trainer.kubeflow.org "nope" not found: '
            "specified clusterTrainingRuntime must be created before the TrainJob is created"
        ),
    ),
    "missing namespaced runtime": (
        trainjob("nope", kind="TrainingRuntime"),
        (
            'spec.runtimeRef: Invalid value: {"name":"nope","apiGroup":"trainer.kubeflow.org",'
            '"kind":"TrainingRuntime"}: '
            'TrainingRuntime.trainer.kubeflow.org "nope" not found: '
            "specified trainingRuntime must be created before the TrainJob is created"
        ),
    ),
    "unknown kind": (trainjob(kind="Foo"), "unsupported runtime: Foo.trainer.kubeflow.org"),
    "reserved env": (
        trainjob(
            env=[{"name": "PET_NNODES", "value": "2"}, {"value": "1", "name": "PET_MASTER_ADDR"}, {"name": "PET_FOO"}]
        ),
        (
            'spec.trainer.env: Invalid value: [{"name":"PET_NNODES","value":"2"},{"name":"PET_MASTER_ADDR",'
            '"value":"1"},'
            '{"name":"PET_FOO"}]: must not have reserved envs, invalid envs configured: [PET_MASTER_ADDR PET_NNODES]'
        ),
    ),
    "initializers without jobs": (
        trainjob(spec={"initializer": {"dataset": {"storageUri": "hf://a/b"}, "model": {"storageUri": "hf://a/b"}}}),
        (
            f"[spec.runtimeRef: Invalid value: {REF}: must have dataset-initializer job when trainJob is "
            f"configured with "
            f"input datasetConfig, spec.runtimeRef: Invalid value: {REF}: must have model-initializer job when "
            f"trainJob is "
            "configured with input modelConfig]"
        ),
    ),
    "QLoRA on qwen": (
        tune(QWEN, "model.quantize_base=True"),
        f'spec.runtimeRef.name: Invalid value: "{QWEN}": QLoRA is not supported for qwen2_5/1.5B model',
    ),
    "QLoRA on two GPUs": (
        tune(LLAMA, "model.quantize_base=True", resourcesPerNode={"limits": {"nvidia.com/gpu": 2}}),
        (
            '[spec.trainer.numProcPerNode: Invalid value: "auto": must be auto or 1 for llama3_2/1B model when '
            "using QLoRA, "
            'spec.trainer.resourcesPerNode: Invalid value: {"limits":{"nvidia.com/gpu":"2"}}: must have gpu '
            "resource with "
            "value 1 for llama3_2/1B model when using QLoRA]"
        ),
    ),
    "QLoRA with two processes": (
        tune(LLAMA, "model.quantize_base=True", numProcPerNode=2),
        (
            "[spec.trainer.numProcPerNode: Invalid value: 2: must be auto or 1 for llama3_2/1B model when using QLoRA, "
            "spec.trainer.resourcesPerNode: Invalid value: null: must have gpu resource with value 1 for "
            "llama3_2/1B model "
            "when using QLoRA]"
        ),
    ),
    "nodes": (
        tune(LLAMA, "model.lora_attn_modules=[q]", numNodes=2),
        (
            "[spec.trainer.numNodes: Invalid value: 2: must be 1 for llama3_2/1B model, spec.trainer.numNodes: "
            "Invalid value: "
            "2: LoRA fine-tuning is not supported for multi-node training in TorchTune]"
        ),
    ),
    "immutable arguments": (
        tune(LLAMA, "output_dir=/x", "epochs=1", "tokenizer.path=1"),
        (
            '[spec.trainer.args[0]: Invalid value: "output_dir=/x": must not set immutable config "output_dir" '
            "in trainer "
            'args; it is managed by the runtime, spec.trainer.args[2]: Invalid value: "tokenizer.path=1": must not set '
            'immutable config "tokenizer.path" in trainer args; it is managed by the runtime]'
        ),
    ),
    "no model in the runtime's name": (
        tune(TORCH),
        (
            f'spec.runtimeRef.name: Invalid value: "{TORCH}": must have a supported pretrained model, '
            "invalid model configured: "
        ),
    ),
    "env in a patch": (
        patched({"containers": [{"name": "node", "env": [{"name": "A", "value": "b"}]}]}),
        (
            'spec.runtimePatches: Invalid value: [{"manager":"example.org/x","time":"2026-01-31T12:00:00Z",'
            '"trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node",'
            '"template":{"spec":{"template":'
            '{"spec":{"containers":[{"name":"node","env":[{"name":"A","value":"b"}]}]}}}}}]}}}}]: must not have '
            "envs for the "
            "dataset-initializer, model-initializer, node containers"
        ),
    ),
    "manager": (
        patched(manager="notadomain"),
        (
            'spec.runtimePatches.manager: Invalid value: "notadomain": must be a domain-prefixed path (such as '
            '"acme.io/foo")'
        ),
    ),
    "manager's path": (
        patched(manager="acme.io/x y"),
        (
            'spec.runtimePatches.manager: Invalid value: "x y": Invalid path (regex used for validation is '
            "'[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_is_refused(registry, case):
    job, text = REFUSED[case]
    with pytest.raises(Refusal) as caught:
        registry.create("trainjobs", job, "default")
    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
    assert caught.value.message == DENIED + text


ACCEPTED = {
    "plain": trainjob(command=["x"]),
    "no nodes": trainjob(numNodes=0),
    "other reserved-looking names": trainjob(env=[{"name": "MASTER_ADDR", "value": "x"}, {"name": "PET_FOO"}]),
    "torchtune rules need the command": trainjob(LLAMA, command=["tune"], args=["output_dir=/x"], numNodes=2),
    "lora on one node": tune(LLAMA, "model.lora_attn_modules=[q]"),
    "qlora on one GPU": tune(LLAMA, "model.quantize_base=True", resourcesPerNode={"limits": {"nvidia.com/gpu": 1}}),
    "initializers": trainjob(LLAMA, spec={"initializer": {"dataset": {"storageUri": "hf://a/b"}}}),
    "a patch for an unknown container": patched({"containers": [{"name": "other"}]}),
}


@pytest.mark.parametrize("case", ACCEPTED, ids=str)
def test_what_is_accepted(registry, case):
    assert registry.create("trainjobs", ACCEPTED[case], "default")["metadata"]["uid"]


def test_the_time_of_a_patch_is_stamped_when_it_changes(registry, clock):
    job = patched({"nodeSelector": {"a": "b"}})
    job["spec"]["suspend"] = True
    created = registry.create("trainjobs", job, "default")
    (patch,) = created["spec"]["runtimePatches"]
    assert patch["time"] == "2026-01-31T12:00:00Z"
    clock.now += timedelta(minutes=1)
    same = registry.patch("trainjobs", "r1", {"metadata": {"labels": {"x": "y"}}}, "default")
    assert same["spec"]["runtimePatches"] == [patch]
    changed = [
        {
            **patch,
            "trainingRuntimeSpec": patched({"nodeSelector": {"a": "c"}})["spec"]["runtimePatches"][0][
                "trainingRuntimeSpec"
            ],
        }
    ]
    updated = registry.patch("trainjobs", "r1", {"spec": {"runtimePatches": changed}}, "default")
    assert updated["spec"]["runtimePatches"][0]["time"] == "2026-01-31T12:01:00Z"


def test_patches_change_only_while_suspended(registry):
    registry.create("trainjobs", trainjob(command=["x"]), "default")
    change = {"runtimePatches": patched()["spec"]["runtimePatches"]}
    with pytest.raises(Refusal, match="can only be modified when the TrainJob is suspended before or after the update"):
        registry.patch("trainjobs", "r1", {"spec": change}, "default")
    active = {"replicatedJobsStatus": [{"name": "node", "active": 1}]}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "r1"}}
    registry.create("jobsets", {**jobset, "spec": {"replicatedJobs": []}}, "default")
    registry.patch("jobsets", "r1", {"status": active}, "default", subresource="status")
    with pytest.raises(Refusal, match="cannot be modified when the JobSet's ReplicatedJob node is still active"):
        registry.patch("trainjobs", "r1", {"spec": {**change, "suspend": True}}, "default")


def test_a_job_of_a_deleted_runtime_can_be_deleted_but_not_changed(registry):
    registry.create("trainjobs", trainjob(command=["x"]), "default")
    registry.delete("clustertrainingruntimes", TORCH)
    with pytest.raises(Refusal, match="not found"):
        registry.patch("trainjobs", "r1", {"spec": {"suspend": True}}, "default")
    registry.delete("trainjobs", "r1", "default")


# -- what the API server and JobSet's webhooks fill in ----------------------------------------------------------------


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
    with pytest.raises(Refusal) as caught:
        registry.create("pods", pod, "default")
    expected = 'pods "p" is forbidden: error looking up service account default/nope: serviceaccount "nope" not found'
    assert caught.value.message == expected


def test_claims_are_protected(registry):
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
    with pytest.raises(Refusal) as caught:
        registry.patch("jobsets", "j", {"spec": {"volumeClaimPolicies": policies}}, "default")
    expected = 'JobSet.jobset.x-k8s.io "j" is invalid: spec.volumeClaimPolicies: Invalid value: Value is immutable'
    assert (caught.value.status, caught.value.message) == (422, expected)
