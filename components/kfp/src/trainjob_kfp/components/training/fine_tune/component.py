"""Component `fine_tune`.

Written by tools/parameters from the classes in `trainjob.spec`: run `make reference`.

Kubeflow Pipelines sends only the function's source, and evaluates its annotations immediately. The annotations are
therefore not postponed, and the body uses no name of this module.
"""
# ruff: noqa: B006, UP006, UP035
# mypy: disable-error-code="valid-type,untyped-decorator"

from typing import Any, Dict, List, NamedTuple

from kfp import dsl

from trainjob_kfp.packaging import trainjob_component


@trainjob_component
def fine_tune(
    model: str,
    metrics: dsl.Output[dsl.Metrics],
    loss_curve: dsl.Output[dsl.HTML],
    framework: str = "",
    method: str = "",
    epochs: float = 0.0,
    max_steps: int = 0,
    batch_size: int = 0,
    learning_rate: float = 0.0,
    lora_rank: int = 0,
    eval_dataset_path: str = "",
    arguments: Dict[str, Any] = {},
    config: Dict[str, Any] = {},
    workspace: str = "",
    dataset: Dict[str, Any] = {},
    model_initializer: Dict[str, Any] = {},
    dataset_path: str = "data",
    model_path: str = "model",
    output_path: str = "",
    runtime: Dict[str, Any] = {},
    image: str = "",
    max_restarts: int = 0,
    resume: bool = True,
    resume_from: Dict[str, Any] = {},
    checkpoint_uri: str = "",
    checkpoint_endpoint: str = "",
    tracking: Dict[str, Any] = {},
    watchdog: Dict[str, Any] = {},
    env: Dict[str, Any] = {},
    secret: Dict[str, Any] = {},
    program: str = "packed",
    name: str = "",
    labels: Dict[str, Any] = {},
    annotations: Dict[str, Any] = {},
    deadline: str = "",
    queue: Dict[str, Any] = {},
    placement: Dict[str, Any] = {},
    volumes: List[Dict[str, Any]] = [],
    managed_by: str = "",
    suspend: bool = False,
    runtime_patches: List[Dict[str, Any]] = [],
    queue_timeout: str = "",
    start_timeout: str = "",
    interruption_retries: int = 3,
    on_kill: str = "delete",
    on_failure: str = "delete",
    ttl_after_success: str = "",
    ttl_after_failure: str = "",
    after_jobs: List[str] = [],
    namespace: str = "",
    delete_with_run: bool = False,
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
    """Fine-tune `/workspace/model` on `/workspace/dataset` with a training framework.

    The configuration is the inputs `framework` to `arguments`, and `config` with any other field of the framework's
    class. The checkpoints and the final model are written to `/workspace/output`.

    Accelerators, CPU, memory, environment, volumes, tolerations, node selector and affinity that are set on the task
    apply to the training pods. The task's own pod only follows the TrainJob.

    An input whose default is empty or 0 is not given then. Where a description names a class, give a dict of its
    fields; a text for `queue`, `runtime` or `secret` means the name.

    `workspace` may also be a path at which the task has mounted a PersistentVolumeClaim. It is
    `dsl.WORKSPACE_PATH_PLACEHOLDER` for the pipeline's own workspace, a path below it, or a path below a volume of
    `kubernetes.mount_pvc`.

    Args:
        model: Name of the model. A framework with recipes for certain models accepts only their names. With others, it
            is a free name; the trained model is the one in `model_path`.
        metrics: Last and first training loss (`loss`, `first_loss`), other metrics, `steps`, `epochs`, `seconds`,
            `gpu_seconds`, `pod_seconds` and `attempts`, as far as they are known.
        loss_curve: Page with the loss by optimizer step, or the reward if it is reported.
        framework: Name of the training framework, unless `config` has it; for one of another package, the image of the
            step contains the package.
        method: Method of the framework, such as sft or dpo.
        epochs: Passes over the dataset; by default the framework's number.
        max_steps: Optimizer steps, in place of `epochs`.
        batch_size: Samples that a process computes at once; by default the framework's number.
        learning_rate: The optimizer's learning rate at its highest; by default the framework's.
        lora_rank: Rank of LoRA; by default all weights are trained, or as `config` says.
        eval_dataset_path: Rows for evaluation, below `/workspace/dataset`; by default there are none.
        arguments: Other arguments of the framework by name, such as {"beta": 0.1}.
        config: Configuration of the training, which is required; its class determines the framework. A dict of its
            fields also has the framework's name as `framework`.
        workspace: Name of the PersistentVolumeClaim of the steps, mounted at /workspace; or a path, see the overview.
        dataset: Without a workspace: an initializer that fetches the dataset inside the same TrainJob.
        model_initializer: Without a workspace: an initializer that fetches the model inside the same TrainJob.
        dataset_path: Folder or file of the data below `/workspace/dataset`; `.` means the whole folder; by default
            `data`.
        model_path: Folder of the model below `/workspace`, for example from the export of an earlier training; by
            default `model`.
        output_path: Folder of the checkpoints below `/workspace/output`. Trainings that share a workspace each need
            their own folder.
        runtime: Name of the training runtime, or a `Runtime`; by default the stock runtime `torch-distributed`.
        image: Image with the framework, only with a workspace; by default the framework's, or the runtime's.
        max_restarts: How often a failing container may be restarted in place before the TrainJob is ended. In Python
            and files, None (null) leaves it to the runtime.
        resume: Whether to continue from the last complete checkpoint that an earlier attempt of the same run left on
            the workspace. What decides the weights must be the same, such as the learning rate and the files of model
            and dataset; see `trainjob.manifest.weight_fields`. By default `True`.
        resume_from: Checkpoint of another training from which this one starts, with its own hyperparameters; only with
            a workspace: a `ResumeFrom` or a dict of its fields, a step, or a folder below `/workspace`. By default it
            starts from the model.
        checkpoint_uri: Address in an object store, such as `s3://bucket/checkpoints`, to which the last complete
            checkpoint is copied while the training continues; only with a workspace. A retry whose workspace has no
            checkpoint fetches the copy. `secret` has the credentials. By default nothing is copied.
        checkpoint_endpoint: URL of this object store, if it is not AWS, Google or Azure.
        tracking: Experiment tracker that gets the configuration as parameters, and the training's metrics: an `MLflow`,
            `WandB` or `TensorBoard`, or a dict of its fields and `backend` (`mlflow`, `wandb` or `tensorboard`); only
            with a workspace. A retry continues the same tracked run.
        watchdog: Limits of the training's silence, and what follows when it hangs: a `Watchdog`, or a dict of its
            fields; only with a workspace. By default nobody watches.
        env: Environment variables by name; secrets as `SecretKeyReference`.
        secret: Name of the Kubernetes Secret with the credentials, or a `SecretReference`.
        program: Where the code of the step's program comes from. `packed` sends it in the command of the pods, so that
            any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments. By default
            `packed`.
        name: Start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
        labels: Labels of the TrainJob and of its pods, for example for cost reports. They are part of the request: a
            later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
        annotations: Annotations of the TrainJob and of its pods, in the same way.
        deadline: Maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then the
            cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
        queue: Name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority class or
            a topology.
        placement: A `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
        volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
        managed_by: Controller that acts on the TrainJob; by default this cluster's Trainer. With
            `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3, because
            an older one also runs it on this cluster.
        suspend: Whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
        runtime_patches: Patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
            applied after those of the other fields. Trainer 2.2 and later.
        queue_timeout: Maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times, such
            as `8h`; by default there is no limit.
        start_timeout: Maximum time after the queue until all pods of the training are ready, in the same way.
        interruption_retries: How often another attempt starts after the infrastructure has interrupted the TrainJob,
            for example by an eviction, a preemption or a drain. These attempts do not count as retries of the workflow
            engine. With 0, an interruption is a failure. By default `3`.
        on_kill: Action on a terminated task's TrainJob: `delete`, `keep`, or `keep_on_drain` (keep after a drain); by
            default `delete`.
        on_failure: Action on the TrainJob when it is ended because of its restarts, or because it cannot start:
            `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods are
            retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
            `delete`.
        ttl_after_success: Time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
            deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
        ttl_after_failure: The same time after it has failed.
        after_jobs: Output `job` of the earlier steps whose files this step reads; with it, this step may be cached.
        namespace: Namespace of the TrainJob; by default the pipeline's own.
        delete_with_run: Whether a finished TrainJob, too, is deleted along with the run's Workflow.
        attempts: Number of TrainJobs that may fail, with pauses of 10 s to 5 min, before the step fails; by default
            `1`.
        task_config: Settings of the task for its pods; Kubeflow Pipelines sets this value.

    Returns:
        job: Name of the TrainJob.
        namespace: Namespace of the TrainJob.
        uid: UID of the TrainJob.
        status: `Complete`; a step that fails has no outputs.
        workspace: Name of the PersistentVolumeClaim that was mounted at /workspace; empty if there is none.
        output_path: Folder of the checkpoints: `/workspace/output` or a folder below it.
        tracking_url: Address of the tracked run; empty without `tracking`, or without a page.
    """
    given = locals()
    from trainjob_kfp import component_programs

    return component_programs.fine_tune(**given)
