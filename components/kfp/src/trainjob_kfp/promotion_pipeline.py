"""The pipeline without code that compares a model with the one that KServe serves, and promotes the better one."""

# kfp reads the annotations immediately, so this file has no `from __future__ import annotations`.
# mypy: disable-error-code="untyped-decorator"

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from kfp import dsl

from trainjob_kfp import cleanup, evaluate_model, initialize_dataset, initialize_model, promote_model

__all__ = ["NAME", "build_promotion_pipeline"]

NAME = "evaluate-and-promote"
"""Name of the pipeline."""
_IN_ALL_STEPS: Mapping[str, Any] = {"workspace": dsl.WORKSPACE_PATH_PLACEHOLDER, "delete_with_run": True}
_GATES: Mapping[str, Any] = {"held_out/bits_per_byte": {"better_than_champion": True}}


@dsl.pipeline
def promote_if_passed(
    passed: bool, model: str, service: str, canary_percent: int, smoke_request: dict[str, Any], time_limit: str
) -> None:
    """Promote a model whose gates have passed.

    This is a separate pipeline, because kfp.local 2.17 accepts a condition on a parameter, but not on one of several
    outputs of a step.
    """
    with dsl.If(passed == True):  # noqa: E712 - kfp builds the condition from this comparison
        promote_model(
            model=model,
            service=service,
            canary_percent=canary_percent,
            smoke_request=smoke_request,
            time_limit=time_limit,
            delete_with_run=True,
        )


def build_promotion_pipeline(workspace: dsl.WorkspaceConfig) -> Any:
    """Return the pipeline.

    Args:
        workspace: the claim that its steps share.
    """

    def pipeline(
        model_uri: str,
        dataset_uri: str,
        service: str,
        gates: dict[str, Any] = {**_GATES},  # noqa: B006 - kfp copies it into the YAML
        tasks: list[str] = [],  # noqa: B006
        limit: int = 0,
        chat_template: bool = False,
        dataset_columns: dict[str, Any] = {},  # noqa: B006
        dataset_subset: str = "",
        dataset_split: str = "test",
        canary_percent: int = 0,
        smoke_request: dict[str, Any] = {},  # noqa: B006
        time_limit: str = "30m",
        gpus: int = 1,
        gpu_type: str = "nvidia.com/gpu",
        cpu: str = "4",
        memory: str = "32Gi",
        image: str = "",
        env: dict[str, Any] = {},  # noqa: B006
        queue: str = "",
        model_secret: str = "",
        model_endpoint: str = "",
        dataset_secret: str = "",
        dataset_endpoint: str = "",
    ) -> None:
        """Run the steps one after the other.

        Nodes cannot share a claim that is ReadWriteOnce.

        Args:
            model_uri: Complete new model, at the address from which KServe can load it, such as s3://bucket/path.
            dataset_uri: Rows that no training has seen, such as hf://organization/name or s3://bucket/rows.jsonl.
            service: InferenceService that serves the model to compare with, and that is to serve the new one.
            gates: Gates by metric, such as {"held_out/bits_per_byte": {"better_than_champion": true}}.
            tasks: Tasks of lm-evaluation-harness besides, such as ["arc_easy"].
            limit: Number of rows of each task, and of the dataset; 0 means all.
            chat_template: Whether prompts get the form of the tokenizer's chat template.
            dataset_columns: The dataset's columns by the project's names, such as {"prompt": "question"}.
            dataset_subset: Subset of the dataset, if its repository has several.
            dataset_split: Rows for the comparison, such as test or test[:500].
            canary_percent: Share of the requests that the new model gets, with Knative; 0 means all.
            smoke_request: Request that the new model must answer, such as {"url": "/openai/v1/models"}.
            time_limit: Longest time until the new model is served.
            gpus: Number of GPUs; 0 scores on the CPU.
            gpu_type: Resource name of the GPUs.
            cpu: CPUs of the evaluation.
            memory: Memory of the evaluation.
            image: Image with lm-evaluation-harness; empty means that the Trainer's image installs it.
            env: Environment variables of the steps, such as {"PIP_INDEX_URL": "https://pypi.example.org/simple"}.
            queue: LocalQueue of Kueue in which the evaluation waits for quota; empty means none.
            model_secret: Name of the Secret with the credentials for both models.
            model_endpoint: URL of the models' store, if it is not AWS, Google, Azure or the public Hub.
            dataset_secret: Name of the Secret with the credentials for the dataset.
            dataset_endpoint: URL of the dataset's store.
        """
        with dsl.ExitHandler(cleanup()):
            dataset = initialize_dataset(
                storage_uri=dataset_uri,
                subset=dataset_subset,
                split=dataset_split,
                columns=dataset_columns,
                secret=dataset_secret,
                endpoint=dataset_endpoint,
                env=env,
                **_IN_ALL_STEPS,
            )
            model = initialize_model(
                storage_uri=model_uri, secret=model_secret, endpoint=model_endpoint, env=env, **_IN_ALL_STEPS
            ).after(dataset)
            scored = evaluate_model(
                model_path="model",
                champion={"service": service, "endpoint": model_endpoint},
                held_out="dataset/data",  # the prepared rows
                tasks=tasks,
                gates=gates,
                limit=limit,
                chat_template=chat_template,
                secret=model_secret,
                image=image,
                env=env,
                queue=queue,
                any_run=True,
                after_jobs=[dataset.outputs["job"], model.outputs["job"]],
                **_IN_ALL_STEPS,
            )
            scored.set_accelerator_type(gpu_type).set_accelerator_limit(gpus)
            scored.set_cpu_limit(cpu).set_memory_limit(memory)
            promote_if_passed(
                passed=scored.outputs["passed"],
                model=model_uri,
                service=service,
                canary_percent=canary_percent,
                smoke_request=smoke_request,
                time_limit=time_limit,
            )

    return dsl.pipeline(
        pipeline,
        name=NAME,
        description=(
            "Compare a model with the one that KServe serves, and promote it if its gates pass. "
            f"Version {version('kfp-trainjob')}."
        ),
        pipeline_config=dsl.PipelineConfig(workspace=workspace),
    )
