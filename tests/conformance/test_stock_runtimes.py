"""The stock runtimes of every cluster with Trainer, described by hand."""

from __future__ import annotations

import pytest

from tests.conformance.built_jobsets import TORCHTUNE_RUNTIMES

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
TORCH = {
    (2, 3): "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime",
    (2, 2): "pytorch/pytorch:2.10.0-cuda12.8-cudnn9-runtime",
    (2, 1): "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime",
}
RELEASE = {(2, 3): "v2.3.0", (2, 2): "v2.2.1", (2, 1): "v2.1.0"}
LLAMA_TOKENIZER = ["tokenizer.path=/workspace/model/original/tokenizer.model"]
QWEN_TOKENIZER = ["tokenizer.path=/workspace/model/vocab.json", "tokenizer.merges_file=/workspace/model/merges.txt"]
MODELS = {
    "torchtune-llama3.2-1b": ("meta-llama/Llama-3.2-1B-Instruct", "llama3_2/1B_full", LLAMA_TOKENIZER),
    "torchtune-llama3.2-3b": ("meta-llama/Llama-3.2-3B-Instruct", "llama3_2/3B_full", LLAMA_TOKENIZER),
    "torchtune-qwen2.5-1.5b": ("Qwen/Qwen2.5-1.5B-Instruct", "qwen2_5/1.5B_full", QWEN_TOKENIZER),
}


def policy(target):
    return {"numNodes": 1, "torch": {"numProcPerNode": "auto"} if target.trainer < (2, 2) else {}}


def labels(target, framework):
    unchecked = {"trainer.kubeflow.org/webhook-validation": "disabled"} if target.trainer >= (2, 3) else {}
    return {"trainer.kubeflow.org/framework": framework, **unchecked}


def summarize_steps(runtime):
    """Return the relevant fields of each step, without the API server's defaults."""
    rows = []
    for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        containers = [{key: value for key, value in one.items() if value} for one in pod["containers"]]
        needs = [(one["name"], one["status"]) for one in job.get("dependsOn", [])]
        volumes = {one["name"]: one["persistentVolumeClaim"]["claimName"] for one in pod.get("volumes", [])}
        rows.append((job["name"], job["template"]["metadata"]["labels"], needs, volumes, containers))
    return rows


def test_torch_distributed_runtime(client, target):
    """torch-distributed has one step, `node`, with PyTorch's own image and no command."""
    runtime = client.get("ClusterTrainingRuntime", None, "torch-distributed")
    assert runtime["metadata"]["labels"] == labels(target, "torch")
    assert runtime["spec"]["mlPolicy"] == policy(target)
    container = {"name": "node", "image": TORCH[target.trainer]}
    assert summarize_steps(runtime) == [("node", {STEP: "trainer"}, [], {}, [container])]


@pytest.mark.parametrize("name", TORCHTUNE_RUNTIMES.values())
def test_torchtune_runtimes(client, target, name):
    """TorchTune's runtimes fetch a dataset and a model, then train on two GPUs. All three steps share a volume."""
    repository, config, tokenizer = MODELS[name]
    runtime = client.get("ClusterTrainingRuntime", None, name)
    own = target.trainer >= (2, 2)
    mount = {"volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}]}
    volumes = {} if own else {"initializer": name}
    complete = [("dataset-initializer", "Complete"), ("model-initializer", "Complete")]
    trainer = {
        "name": "node",
        "image": f"ghcr.io/kubeflow/trainer/torchtune-trainer:{RELEASE[target.trainer]}",
        "command": [
            *("tune", "run", "--rdzv_endpoint=localhost:29500", "full_finetune_distributed", "--config", config),
            *("dataset=torchtune.datasets.instruct_dataset", "dataset.source=parquet"),
            *("dataset.data_dir=/workspace/dataset/data", "output_dir=/workspace/output", *tokenizer),
            "checkpointer.checkpoint_dir=/workspace/model",
        ],
        **mount,
    }

    def initializer(kind, uri):
        image = f"ghcr.io/kubeflow/trainer/{kind}-initializer:{RELEASE[target.trainer]}"
        return {"name": f"{kind}-initializer", "image": image, "env": [{"name": "STORAGE_URI", "value": uri}], **mount}

    def step(step_name, role, needs, container):
        return (step_name, {STEP: role}, needs, volumes, [container])

    found = summarize_steps(runtime)
    gpus = found[-1][-1][0].pop("resources")
    assert {kind: {key: str(value) for key, value in amounts.items()} for kind, amounts in gpus.items()} == {
        "limits": {"nvidia.com/gpu": "2"}
    }
    assert runtime["metadata"]["labels"] == labels(target, "torchtune")
    assert runtime["spec"]["mlPolicy"] == policy(target)
    dataset, model = (f"{kind}-initializer" for kind in ("dataset", "model"))
    assert found == [
        step(dataset, dataset, [], initializer("dataset", "hf://tatsu-lab/alpaca")),
        step(model, model, [], initializer("model", f"hf://{repository}")),
        step("node", "trainer", complete, trainer),
    ]
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
    policies = [{"templates": [{"metadata": {"name": "initializer"}, "spec": claim}]}] if own else None
    assert runtime["spec"]["template"]["spec"].get("volumeClaimPolicies") == policies


def test_no_other_torch_runtimes(client, target):
    """No other runtime's name starts with torch; further runtimes are for other frameworks."""
    found = {one["metadata"]["name"] for one in client.list("ClusterTrainingRuntime", None)}
    assert {name for name in found if name.startswith("torch")} == {"torch-distributed", *MODELS}


@pytest.mark.since("2.2")
def test_jax_and_xgboost_runtimes(client, target):
    """jax-distributed and xgboost-distributed resemble torch-distributed, with their own policies and images."""
    images = {"jax": "nvcr.io/nvidia/jax:25.10-py3", "xgboost": "ghcr.io/kubeflow/trainer/xgboost-runtime"}
    for framework, image in images.items():
        runtime = client.get("ClusterTrainingRuntime", None, f"{framework}-distributed")
        assert runtime["metadata"]["labels"] == labels(target, framework)
        assert runtime["spec"]["mlPolicy"] == {"numNodes": 1, framework: {}}
        tag = f":{RELEASE[target.trainer]}" if framework == "xgboost" else ""
        assert summarize_steps(runtime) == [
            ("node", {STEP: "trainer"}, [], {}, [{"name": "node", "image": f"{image}{tag}"}])
        ]


@pytest.mark.differs("laptop", "the laptop cluster has no runtimes for MPI")
@pytest.mark.only("laptop", "controlplane", "docker")
def test_other_frameworks(client, target):
    """There are runtimes for DeepSpeed and MLX too, and since 2.2 for JAX and XGBoost."""
    found = {one["metadata"]["name"] for one in client.list("ClusterTrainingRuntime", None)}
    found = {name for name in found if not name.startswith("cluster-")}  # these are of test_runtime_files.py
    newer = {"jax-distributed", "xgboost-distributed"} if target.trainer >= (2, 2) else set()
    assert found == {"torch-distributed", *MODELS, "deepspeed-distributed", "mlx-distributed", *newer}
