"""The stock ClusterTrainingRuntimes, which the laptop cluster creates when it starts.

Names, images, commands and volumes are those of Trainer 2.3 (`manifests/base/runtimes`, images tagged v2.3.0).
"""

from __future__ import annotations

from trainjob_local.objects import Json

__all__ = ["TRAINER_VERSION", "stock_runtimes"]

TRAINER_VERSION = "v2.3.0"
"""Version of Trainer that this cluster behaves like."""
_TORCH_IMAGE = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"
_IMAGES = "ghcr.io/kubeflow/trainer"
_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
_LLAMA_TOKENIZER = ("tokenizer.path=/workspace/model/original/tokenizer.model",)
_QWEN_TOKENIZER = (
    "tokenizer.path=/workspace/model/vocab.json",
    "tokenizer.merges_file=/workspace/model/merges.txt",
)


def stock_runtimes() -> list[Json]:
    """Return the ClusterTrainingRuntimes that Trainer installs, except those for MPI."""
    return [
        _distributed_runtime("torch", _TORCH_IMAGE),
        _distributed_runtime("jax", "nvcr.io/nvidia/jax:25.10-py3"),
        _distributed_runtime("xgboost", f"{_IMAGES}/xgboost-runtime:{TRAINER_VERSION}"),
        _torchtune_runtime(
            "torchtune-llama3.2-1b", "meta-llama/Llama-3.2-1B-Instruct", "llama3_2/1B_full", _LLAMA_TOKENIZER
        ),
        _torchtune_runtime(
            "torchtune-llama3.2-3b", "meta-llama/Llama-3.2-3B-Instruct", "llama3_2/3B_full", _LLAMA_TOKENIZER
        ),
        _torchtune_runtime(
            "torchtune-qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B-Instruct", "qwen2_5/1.5B_full", _QWEN_TOKENIZER
        ),
    ]


def _distributed_runtime(framework: str, image: str) -> Json:
    template = {"replicatedJobs": [_replicated_job("node", "trainer", {"name": "node", "image": image})]}
    return _runtime(f"{framework}-distributed", framework, template, policy=framework)


def _runtime(name: str, framework: str, template: Json, *, policy: str = "torch") -> Json:
    labels = {"trainer.kubeflow.org/framework": framework, "trainer.kubeflow.org/webhook-validation": "disabled"}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": name, "labels": labels},
        "spec": {"mlPolicy": {"numNodes": 1, policy: {}}, "template": {"spec": template}},
    }


def _replicated_job(name: str, step: str, container: Json, depends_on: tuple[str, ...] = ()) -> Json:
    needed = {"dependsOn": [{"name": other, "status": "Complete"} for other in depends_on]} if depends_on else {}
    pod = {"template": {"spec": {"containers": [container]}}}
    return {"name": name, **needed, "template": {"metadata": {"labels": {_STEP: step}}, "spec": pod}}


def _torchtune_runtime(name: str, model: str, config: str, tokenizer: tuple[str, ...]) -> Json:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "20Gi"}}}
    mount = {"volumeMounts": [{"name": "initializer", "mountPath": "/workspace"}]}
    initializers = {
        f"{kind}-initializer": {
            "name": f"{kind}-initializer",
            "image": f"{_IMAGES}/{kind}-initializer:{TRAINER_VERSION}",
            "env": [{"name": "STORAGE_URI", "value": f"hf://{repository}"}],
            **mount,
        }
        for kind, repository in (("dataset", "tatsu-lab/alpaca"), ("model", model))
    }
    dataset = ("dataset=torchtune.datasets.instruct_dataset", "dataset.source=parquet")
    node = {
        "name": "node",
        "image": f"{_IMAGES}/torchtune-trainer:{TRAINER_VERSION}",
        "command": [
            *("tune", "run", "--rdzv_endpoint=localhost:29500", "full_finetune_distributed", "--config", config),
            *(*dataset, "dataset.data_dir=/workspace/dataset/data", "output_dir=/workspace/output"),
            *(*tokenizer, "checkpointer.checkpoint_dir=/workspace/model"),
        ],
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
        **mount,
    }
    jobs = [_replicated_job(step, step, container) for step, container in initializers.items()]
    jobs.append(_replicated_job("node", "trainer", node, tuple(initializers)))
    policies = [{"templates": [{"metadata": {"name": "initializer"}, "spec": claim}]}]
    return _runtime(name, "torchtune", {"volumeClaimPolicies": policies, "replicatedJobs": jobs})
