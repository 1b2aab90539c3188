"""Component `fine_tune`.

Kubeflow Pipelines sends only the function's source, and evaluates its annotations immediately. The annotations are
therefore not postponed, and the body uses no name of this module. A default that is empty or 0 means that the argument
is not given.
"""
# ruff: noqa: ARG001, B006, UP006, UP035
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
    program: str = "packed",
    runtime: str = "",
    runtime_kind: str = "",
    queue: str = "",
    priority_class: str = "",
    deadline: str = "",
    max_restarts: int = 0,
    resume: bool = True,
    tracking: Dict[str, Any] = {},
    after_jobs: List[str] = [],
    namespace: str = "",
    on_kill: str = "delete",
    delete_with_run: bool = False,
    interruption_retries: int = 3,
    attempts: int = 1,
    task_config: dsl.TaskConfig = None,
) -> NamedTuple(
    "Outputs",
    [
        ("job", str),
        ("namespace", str),
        ("uid", str),
        ("status", str),
        ("workspace", str),
        ("output_path", str),
        ("tracking_url", str),
    ],
):
    """Fine-tune `/workspace/model` on `/workspace/dataset` with TorchTune, in a TrainJob.

    The checkpoints are written to `/workspace/output`. Accelerators, CPU, memory, environment, volumes, tolerations,
    node selector and affinity that are set on the task apply to the training pods. The task's own pod only follows the
    TrainJob.

    `workspace` may be a path at which the task has mounted a claim: `dsl.WORKSPACE_PATH_PLACEHOLDER` for the pipeline's
    own workspace, a path below it, or a path below a volume of `kubernetes.mount_pvc`.

    Args:
        model: Model whose recipe is used: llama3.2-1b, llama3.2-3b, llama3.3-70b or qwen2.5-1.5b.
        workspace: Name of the claim that the steps share, mounted at /workspace; or a path, see the overview.
        metrics: Last and first training loss (`loss`, `first_loss`), `steps`, `epochs`, `seconds`, `gpu_seconds`,
            `pod_seconds` and `attempts`.
        loss_curve: HTML page with the loss by optimizer step.
        epochs: Number of passes over the dataset; 0 means the recipe's default.
        batch_size: Number of samples in a batch of one process; 0 means the recipe's default.
        learning_rate: Learning rate of the optimizer; 0 means the recipe's default.
        lora_rank: Rank of the LoRA adapters; 0 trains all weights unless `config` sets `peft_config`.
        config: Other fields of `trainjob.TorchTuneConfig`, such as {"dtype": "fp32", "num_nodes": 2}. With `framework`:
            the fields of this framework, whose package the image of the step contains.
        overrides: Other settings of the recipe as key=value, as on the command line of `tune run`.
        dataset_path: Folder or file of the data below /workspace/dataset; `.` means the whole folder.
        model_path: Folder of the model below /workspace, such as the folder of an earlier export.
        output_path: Folder of the checkpoints below /workspace/output; each fine-tuning of a workspace needs its own.
        secret: Name of a Kubernetes Secret whose keys ACCESS_TOKEN and HF_TOKEN are set as environment variables.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        image: Image with TorchTune; by default Kubeflow Trainer's.
        program: `packed` sends the code of the step in its command; `image` runs the trainjob in the image.
        runtime: Name of the training runtime; by default `torch-distributed`.
        runtime_kind: Kind of the runtime: `TrainingRuntime`, or by default `ClusterTrainingRuntime`.
        queue: Name of the Kueue LocalQueue in which the TrainJob waits.
        priority_class: Name of the Kueue WorkloadPriorityClass, which orders admission and preemption.
        deadline: Maximum time that the TrainJob may be active, such as `6h`; then the cluster ends it.
        max_restarts: Maximum number of restarts in place of a failing container before the step fails.
        resume: Whether a retry resumes after the last complete epoch that an earlier attempt saved in the workspace.
        tracking: Experiment tracker, such as {"backend": "mlflow", "tracking_uri": "https://mlflow.example.org"}.
        after_jobs: Output `job` of the earlier steps whose files this step reads; with it, this step may be cached.
        namespace: Namespace of the TrainJob; by default the pipeline's own.
        on_kill: Action on a terminated task's TrainJob: `delete`, `keep`, or `keep_on_drain` (keep after a drain).
        delete_with_run: Whether a finished TrainJob, too, is deleted along with the run's Workflow.
        interruption_retries: Number of further attempts after evictions, preemptions and drains, within one try.
        attempts: Number of TrainJobs that may fail, with pauses of 10 s to 5 min, before the step fails.
        task_config: Settings of the task for its pods; Kubeflow Pipelines sets this value.

    Returns:
        job: Name of the TrainJob.
        namespace: Namespace of the TrainJob.
        uid: UID of the TrainJob.
        status: `Complete`; a step that fails has no outputs.
        workspace: Name of the claim that was mounted at /workspace; empty if there is none.
        output_path: Folder of the checkpoints: `/workspace/output` or a folder below it.
        tracking_url: Address of the tracked run; empty without `tracking`, and if the tracker has no page.
    """
    from trainjob_kfp import launcher, outputs, steps

    log_summary = outputs.LogSummary()
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
                "program": program,
                "runtime": runtime,
                "runtime_kind": runtime_kind,
                "queue": queue,
                "priority_class": priority_class,
                "deadline": deadline,
                "max_restarts": max_restarts,
                "resume": resume,
                "tracking": tracking,
            },
            task_config,
        )
        outcome = launcher.launch(
            step,
            namespace=namespace,
            on_kill=on_kill,
            delete_with_run=delete_with_run,
            interruption_retries=interruption_retries,
            attempts=attempts,
            on_attempt=log_summary.start_attempt,
            on_progress=log_summary.points.append,
            on_line=log_summary.read_line,
        )
        outputs.log_training_metrics(outcome, log_summary, metrics)
        outputs.write_loss_curve(outcome, log_summary, loss_curve.path)
        output_folder = f"{steps.OUTPUT_FOLDER}/{step.output_path}".rstrip("/")
        return (*outputs.build_outputs(outcome, output_folder, step.workspace), log_summary.tracking_url)
