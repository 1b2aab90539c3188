"""Pipelines that a user starts in the UI without code: compiled packages whose parameters are one form.

    python -m trainjob_kfp.pipelines FOLDER [--workspace-size 200Gi] [--storage-class NAME] [--access-mode MODE]

Each package but one fetches a dataset and a model, trains an adapter (LoRA) with TRL, and exports the result. The other
one is in [trainjob_kfp.promotion_pipeline][]. The steps share a claim that Kubeflow Pipelines creates for the run, and
deletes after its success; its size is part of the package, because Kubeflow Pipelines has no parameter for it (2.17,
backend/src/v2/compiler/argocompiler/argo.go).
"""

# kfp reads the annotations immediately, so this file has no `from __future__ import annotations`.

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kfp import compiler, dsl

from trainjob.errors import TrainJobError
from trainjob.spec.resources import parse_quantity
from trainjob_kfp import cleanup, export_model, fine_tune, initialize_dataset, initialize_model
from trainjob_kfp.promotion_pipeline import NAME, build_promotion_pipeline

# A claim is not removed while a pod that has used it exists, also an ended one (Kubernetes 1.36,
# pkg/controller/volume/pvcprotection). Therefore the TrainJobs are deleted with the run's Workflow.
_IN_ALL_STEPS: Mapping[str, Any] = {"workspace": dsl.WORKSPACE_PATH_PLACEHOLDER, "delete_with_run": True}
# Activations are computed again in place of being kept, so that a model of 8B parameters fits on one GPU.
_ON_A_GPU = {"precision": "bf16", "gradient_checkpointing": True}


@dataclass(frozen=True)
class Package:
    """A pipeline without code.

    Attributes:
        name: name of the pipeline.
        title: what it does.
        method: method of TRL.
        rows: columns that the method reads.
        learning_rate: default of the learning rate.
        batch_size: default of the batch size.
        config: default of the other fields of the configuration.
    """

    name: str
    title: str
    method: str
    rows: str
    learning_rate: float
    batch_size: int
    config: Mapping[str, Any]


PACKAGES = (
    Package(
        "sft-lora",
        "Fine-tune a model on examples (SFT) with LoRA",
        "sft",
        "prompt and completion, messages, or text",
        2e-4,
        4,
        {**_ON_A_GPU, "max_length": 2048},
    ),
    Package(
        "preference-tuning-lora",
        "Tune a model on better and worse answers (DPO) with LoRA",
        "dpo",
        "chosen and rejected, and a prompt if they do not contain it",
        1e-5,
        4,
        {**_ON_A_GPU, "max_length": 1024, "arguments": {"beta": 0.1}},
    ),
    Package(
        "grpo-lora",
        "Train a model with rewards for its own answers (GRPO) with LoRA",
        "grpo",
        "prompt, and the columns that the reward functions read",
        1e-5,
        8,
        {
            **_ON_A_GPU,
            "reward_functions": ["think_format_reward"],
            "arguments": {"num_generations": 8, "max_completion_length": 256},
        },
    ),
)
"""The pipelines without code."""


def build_pipeline(package: Package, workspace: dsl.WorkspaceConfig) -> Any:
    """Return the KFP pipeline of a package.

    Args:
        package: the package.
        workspace: the claim that its steps share.
    """

    def pipeline(
        model_uri: str,
        dataset_uri: str,
        destination: str = "",
        dataset_columns: dict[str, Any] = {},  # noqa: B006 - kfp copies it into the YAML
        dataset_subset: str = "",
        dataset_split: str = "train",
        eval_split: str = "",
        eval_fraction: float = 0.0,
        epochs: float = 1.0,
        learning_rate: float = package.learning_rate,
        batch_size: int = package.batch_size,
        lora_rank: int = 16,
        config: dict[str, Any] = {**package.config},  # noqa: B006
        adapter: str = "merge",
        gpus: int = 1,
        gpu_type: str = "nvidia.com/gpu",
        cpu: str = "4",
        memory: str = "32Gi",
        image: str = "",
        env: dict[str, Any] = {},  # noqa: B006
        queue: str = "",
        deadline: str = "24h",
        model_secret: str = "",
        model_endpoint: str = "",
        dataset_secret: str = "",
        dataset_endpoint: str = "",
        destination_secret: str = "",
        destination_endpoint: str = "",
    ) -> None:
        """Run the steps one after the other.

        Nodes cannot share a claim that is ReadWriteOnce.

        Args:
            model_uri: Model to train, such as hf://organization/name or s3://bucket/path.
            dataset_uri: Dataset to train on, such as hf://organization/name, s3://bucket/path or
                https://host/rows.jsonl.
            destination: Where the result is written, such as s3://bucket/path or hf://organization/name; empty means
                the artifact store of Kubeflow Pipelines.
            dataset_columns: The dataset's columns by the method's names, such as {"prompt": "question"}.
            dataset_subset: Subset of the dataset, if its repository has several.
            dataset_split: Rows for the training, such as train or train[:5000].
            eval_split: Rows for the evaluation, such as test; empty means none.
            eval_fraction: Share of the rows that is held out for the evaluation instead, such as 0.05; 0 means none.
            epochs: Passes over the dataset.
            learning_rate: The optimizer's learning rate at its highest.
            batch_size: Samples that each GPU computes at once.
            lora_rank: Rank of LoRA.
            config: Other fields of TRLConfig by name, see the reference of the parameters.
            adapter: merge writes a complete model, keep writes the adapter.
            gpus: Number of GPUs, on one node; 0 trains on the CPU.
            gpu_type: Resource name of the GPUs.
            cpu: CPUs of the training.
            memory: Memory of the training.
            image: Image with TRL; empty means that the Trainer's image installs it.
            env: Environment variables of the steps, such as {"PIP_INDEX_URL": "https://pypi.example.org/simple"}.
            queue: LocalQueue of Kueue in which the training waits for quota; empty means none.
            deadline: Maximum time that the training may run.
            model_secret: Name of the Secret with the credentials for the model, if it is not public.
            model_endpoint: URL of the model's store, if it is not AWS, Google, Azure or the public Hub.
            dataset_secret: Name of the Secret with the credentials for the dataset.
            dataset_endpoint: URL of the dataset's store.
            destination_secret: Name of the Secret with the credentials for the destination.
            destination_endpoint: URL of the destination's store.
        """
        with dsl.ExitHandler(cleanup()):
            dataset = initialize_dataset(
                storage_uri=dataset_uri,
                subset=dataset_subset,
                split=dataset_split,
                eval_split=eval_split,
                eval_fraction=eval_fraction,
                columns=dataset_columns,
                secret=dataset_secret,
                endpoint=dataset_endpoint,
                env=env,
                **_IN_ALL_STEPS,
            )
            model = initialize_model(
                storage_uri=model_uri, secret=model_secret, endpoint=model_endpoint, env=env, **_IN_ALL_STEPS
            ).after(dataset)
            training = fine_tune(
                model=model_uri,
                framework="trl",
                method=package.method,
                epochs=epochs,
                learning_rate=learning_rate,
                batch_size=batch_size,
                lora_rank=lora_rank,
                eval_dataset_path=dataset.outputs["eval_dataset_path"],
                config=config,
                image=image,
                env=env,
                queue=queue,
                deadline=deadline,
                on_kill="keep_on_drain",
                after_jobs=[dataset.outputs["job"], model.outputs["job"]],
                **_IN_ALL_STEPS,
            )
            training.set_accelerator_type(gpu_type).set_accelerator_limit(gpus)
            training.set_cpu_limit(cpu).set_memory_limit(memory)
            export_model(
                destination=destination,
                adapter=adapter,
                secret=destination_secret,
                endpoint=destination_endpoint,
                env=env,
                after_jobs=[training.outputs["job"]],
                **_IN_ALL_STEPS,
            )

    return dsl.pipeline(
        pipeline,
        name=package.name,
        description=f"{package.title}. The dataset has the columns {package.rows}. Version {version('kfp-trainjob')}.",
        pipeline_config=dsl.PipelineConfig(workspace=workspace),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the packages as YAML into a folder; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m trainjob_kfp.pipelines", description="Write the pipelines without code as YAML into a folder."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--workspace-size", type=_parse_size, default="100Gi", help="size of each run's PersistentVolumeClaim (100Gi)"
    )
    parser.add_argument("--storage-class", default="", help="its StorageClass; by default the cluster's default")
    parser.add_argument("--access-mode", default="ReadWriteOnce", help="its access mode (ReadWriteOnce)")
    given = parser.parse_args(arguments)
    claim = {"accessModes": [given.access_mode]}
    if given.storage_class:
        claim["storageClassName"] = given.storage_class
    workspace = dsl.WorkspaceConfig(given.workspace_size, dsl.KubernetesWorkspaceConfig(claim))
    given.folder.mkdir(parents=True, exist_ok=True)
    try:
        built = {package.name: build_pipeline(package, workspace) for package in PACKAGES}
        for name, pipeline in {**built, NAME: build_promotion_pipeline(workspace)}.items():
            path = given.folder / f"{name}-{version('kfp-trainjob')}.yaml"
            compiler.Compiler().compile(pipeline, str(path))
            print(path)
    except TrainJobError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parse_size(text: str) -> str:
    if not isinstance(parse_quantity(text), Fraction):
        raise argparse.ArgumentTypeError(f"{text!r} is not a quantity, such as 200Gi")
    return text


if __name__ == "__main__":
    sys.exit(main())
