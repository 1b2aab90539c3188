"""Fine-tune, as a pipeline step.

Kubeflow Pipelines ships the function's source alone and reads its annotations at once: so these are not postponed, and
the body uses no name of this module. Defaults that are empty or 0 stand for "not given".
"""
# ruff: noqa: B006, UP006, UP035
# mypy: disable-error-code="valid-type,untyped-decorator"

from typing import Any, Dict, List, NamedTuple

from kfp import dsl

from trainjob_kfp.image import BASE_IMAGE


@dsl.component(
    base_image=BASE_IMAGE,
    install_kfp_package=False,
    packages_to_install=[],
    task_config_passthroughs=[
        dsl.TaskConfigField.RESOURCES,
        dsl.TaskConfigField.ENV,
        dsl.TaskConfigField.KUBERNETES_AFFINITY,
        dsl.TaskConfigField.KUBERNETES_TOLERATIONS,
        dsl.TaskConfigField.KUBERNETES_NODE_SELECTOR,
    ],
)
def fine_tune(
    model: str,
    workspace: str,
    metrics: dsl.Output[dsl.Metrics],
    epochs: int = 0,
    batch_size: int = 0,
    learning_rate: float = 0.0,
    lora_rank: int = 0,
    config: Dict[str, Any] = {},
    overrides: List[str] = [],
    dataset_path: str = "data",
    secret: str = "",
    env: Dict[str, Any] = {},
    image: str = "",
    runtime: str = "",
    queue: str = "",
    deadline_seconds: int = 0,
    max_restarts: int = 0,
    namespace: str = "",
    keep_on_kill: bool = False,
    task_config: dsl.TaskConfig = None,
) -> NamedTuple("Outputs", [("job", str), ("namespace", str), ("uid", str), ("status", str), ("output_path", str)]):
    """Fine-tune `/workspace/model` on `/workspace/dataset` with TorchTune, in a TrainJob.

    Checkpoints go to `/workspace/output`. Accelerators, CPU, memory, environment, tolerations, node selector and
    affinity that are set on the task go to the training pods; the task's own pod only follows the training.

    Args:
        model: Whose recipes to use: llama3.2-1b, llama3.2-3b, llama3.3-70b or qwen2.5-1.5b.
        workspace: Name of the PersistentVolumeClaim that the steps share; mounted at /workspace.
        metrics: Last training loss (`loss`) and optimizer steps done (`steps`).
        epochs: Passes over the dataset; 0 leaves the recipe's own.
        batch_size: Samples a process computes at once; 0 leaves the recipe's own.
        learning_rate: The optimizer's learning rate; 0 leaves the recipe's own.
        lora_rank: Rank of a LoRA update; 0 trains all weights, unless `config` says otherwise.
        config: Any other field of `trainjob.TorchTuneConfig`, such as {"dtype": "fp32", "num_nodes": 2}.
        overrides: Any other key=value of the recipe's configuration, as on the command line of `tune run`.
        dataset_path: Where the data files lie below /workspace/dataset: a folder or a file; `.` is the folder itself.
        secret: Name of a Kubernetes Secret whose known keys become environment variables of the training.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        image: TorchTune image; by default Kubeflow Trainer's.
        runtime: ClusterTrainingRuntime to run on; by default the stock torch-distributed.
        queue: Name of the Kueue LocalQueue to wait in.
        deadline_seconds: Longest time the TrainJob may be active; the cluster ends it then. 0 means no limit.
        max_restarts: How often a failing container may be restarted in place before the step fails.
        namespace: Namespace of the TrainJob; by default the pipeline's own.
        keep_on_kill: Leave the TrainJob running when the task is terminated; by default it is deleted.
        task_config: What is set on the task for its pods; Kubeflow Pipelines fills it in.

    Returns:
        Name, namespace, uid and status of the TrainJob, and the output's path: `/workspace/output`.
    """
    from trainjob_kfp import launcher, steps

    with launcher.Explained():
        step = steps.fine_tune(
            {
                "model": model,
                "workspace": workspace,
                "epochs": epochs,
                "batch_size": batch_size,
                "learning_rate": learning_rate,
                "lora_rank": lora_rank,
                "config": config,
                "overrides": overrides,
                "dataset_path": dataset_path,
                "secret": secret,
                "env": env,
                "image": image,
                "runtime": runtime,
                "queue": queue,
                "deadline_seconds": deadline_seconds,
                "max_restarts": max_restarts,
            },
            task_config,
        )
        outcome = launcher.launch(step, namespace=namespace, keep_on_kill=keep_on_kill)
        launcher.log_progress(outcome, metrics)
        return launcher.outputs(outcome, "/workspace/output")
