"""Fine-tune, as a pipeline step.

Kubeflow Pipelines ships the function's source alone and reads its annotations at once: so these are not postponed, and
the body uses no name of this module. Defaults that are empty or 0 stand for "not given".
"""
# ruff: noqa: B006, UP006, UP035
# mypy: disable-error-code="valid-type,untyped-decorator"

from typing import Any, Dict, List, NamedTuple

from kfp import dsl

from trainjob_kfp.packaging import trainjob_component


@trainjob_component
def fine_tune(
    model: str,
    workspace: str,
    metrics: dsl.Output[dsl.Metrics],
    loss_curve: dsl.Output[dsl.HTML],
    epochs: int = 0,
    batch_size: int = 0,
    learning_rate: float = 0.0,
    lora_rank: int = 0,
    config: Dict[str, Any] = {},
    overrides: List[str] = [],
    dataset_path: str = "data",
    model_path: str = "model",
    output_path: str = "",
    secret: str = "",
    env: Dict[str, Any] = {},
    image: str = "",
    runtime: str = "",
    runtime_kind: str = "",
    queue: str = "",
    priority_class: str = "",
    deadline_seconds: int = 0,
    max_restarts: int = 0,
    resume: bool = True,
    namespace: str = "",
    on_kill: str = "delete",
    delete_with_run: bool = False,
    task_config: dsl.TaskConfig = None,
) -> NamedTuple(
    "Outputs",
    [("job", str), ("namespace", str), ("uid", str), ("status", str), ("workspace", str), ("output_path", str)],
):
    """Fine-tune `/workspace/model` on `/workspace/dataset` with TorchTune, in a TrainJob.

    Checkpoints go to `/workspace/output`. Accelerators, CPU, memory, environment, volumes, tolerations, node selector
    and affinity that are set on the task go to the training pods; the task's own pod only follows the training.

    `workspace` may be a path at which the task has a claim: `dsl.WORKSPACE_PATH_PLACEHOLDER`, where the pipeline has a
    workspace of its own, a path below it, or one below a volume of `kubernetes.mount_pvc`.

    Args:
        model: Whose recipes to use: llama3.2-1b, llama3.2-3b, llama3.3-70b or qwen2.5-1.5b.
        workspace: Claim that the steps share, mounted at /workspace; or a path where the task has it, see the overview.
        metrics: Last and first training loss (`loss`, `first_loss`), `steps` and `epochs` done, `seconds` in all.
        loss_curve: A page with the loss over the optimizer steps.
        epochs: Passes over the dataset; 0 leaves the recipe's own.
        batch_size: Samples a process computes at once; 0 leaves the recipe's own.
        learning_rate: The optimizer's learning rate; 0 leaves the recipe's own.
        lora_rank: Rank of a LoRA update; 0 trains all weights, unless `config` says otherwise.
        config: Any other field of `trainjob.TorchTuneConfig`, such as {"dtype": "fp32", "num_nodes": 2}.
        overrides: Any other key=value of the recipe's configuration, as on the command line of `tune run`.
        dataset_path: Where the data files lie below /workspace/dataset: a folder or a file; `.` is the folder itself.
        model_path: Where the model lies below /workspace, such as where an export has put an earlier training's.
        output_path: Where the checkpoints go below /workspace/output; trainings that share a workspace need one each.
        secret: Name of a Kubernetes Secret whose known keys become environment variables of the training.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        image: TorchTune image; by default Kubeflow Trainer's.
        runtime: Training runtime to run on; by default the stock torch-distributed.
        runtime_kind: `TrainingRuntime` for one in the TrainJob's namespace; by default `ClusterTrainingRuntime`.
        queue: Name of the Kueue LocalQueue to wait in.
        priority_class: Kueue's WorkloadPriorityClass: who is admitted first, and who has to go for others.
        deadline_seconds: Longest time the TrainJob may be active; the cluster ends it then. 0 means no limit.
        max_restarts: How often a failing container may be restarted in place before the step fails.
        resume: Whether a retry goes on after the last whole epoch that an earlier attempt left on the workspace.
        namespace: Namespace of the TrainJob; by default the pipeline's own.
        on_kill: When the task is terminated: `delete` the TrainJob, `keep` it, or `keep_on_drain` of the task's pod.
        delete_with_run: Have the TrainJob deleted along with the run's Workflow.
        task_config: What is set on the task for its pods; Kubeflow Pipelines fills it in.

    Returns:
        job: Name of the TrainJob.
        namespace: Its namespace.
        uid: Its uid.
        status: `Complete`; a step that fails has no outputs.
        workspace: Name of the claim that was mounted at /workspace; empty without one.
        output_path: Where the checkpoints are: `/workspace/output`, or the folder named below it.
    """
    from trainjob_kfp import launcher, outputs, steps

    account = outputs.LogSummary()
    with launcher.ExitOnError():
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
                "model_path": model_path,
                "output_path": output_path,
                "secret": secret,
                "env": env,
                "image": image,
                "runtime": runtime,
                "runtime_kind": runtime_kind,
                "queue": queue,
                "priority_class": priority_class,
                "deadline_seconds": deadline_seconds,
                "max_restarts": max_restarts,
                "resume": resume,
            },
            task_config,
        )
        outcome = launcher.launch(
            step,
            namespace=namespace,
            on_kill=on_kill,
            delete_with_run=delete_with_run,
            on_progress=account.points.append,
        )
        outputs.log_training_metrics(outcome, account, metrics)
        outputs.write_loss_curve(outcome, account, loss_curve.path)
        return outputs.build_outputs(outcome, f"{steps.OUTPUT_FOLDER}/{step.output_path}".rstrip("/"), step.workspace)
