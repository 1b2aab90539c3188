"""Component `train`.

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
def train(
    metrics: dsl.Output[dsl.Metrics],
    function: str = "",
    function_args: Dict[str, Any] = {},
    manifest: Dict[str, Any] = {},
    image: str = "",
    command: List[str] = [],
    args: List[str] = [],
    env: Dict[str, Any] = {},
    code: Dict[str, Any] = {},
    module: str = "",
    script: str = "",
    num_nodes: List[int] = [],
    shrink_after: str = "",
    resources_per_node: Dict[str, Any] = {},
    num_proc_per_node: int = 0,
    packages_to_install: List[str] = [],
    pip_index_urls: List[str] = [],
    resume: bool = False,
    resume_from: Dict[str, Any] = {},
    runtime: Dict[str, Any] = {},
    initializer: Dict[str, Any] = {},
    workspace: str = "",
    tracking: Dict[str, Any] = {},
    watchdog: Dict[str, Any] = {},
    program: str = "packed",
    model_check: Dict[str, Any] = {},
    max_restarts: int = 0,
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
        ("result", str),
        ("tracking_url", str),
    ],
):
    """Run a container, a Python function or a runtime's own training program as a TrainJob.

    Accelerators, CPU, memory, environment, volumes, tolerations, node selector and affinity that are set on the task
    apply to the training pods. The task's own pod only follows the TrainJob. torchrun runs a function on each node.

    An input whose default is empty or 0 is not given then. Where a description names a class, give a dict of its
    fields; a text for `queue`, `runtime` or `secret` means the name.

    `workspace` may also be a path at which the task has mounted a PersistentVolumeClaim. It is
    `dsl.WORKSPACE_PATH_PLACEHOLDER` for the pipeline's own workspace, a path below it, or a path below a volume of
    `kubernetes.mount_pvc`.

    Args:
        metrics: Last and first training loss (`loss`, `first_loss`), other metrics, `steps`, `epochs`, `seconds`,
            `gpu_seconds`, `pod_seconds` and `attempts`, as far as they are known.
        function: A Python function, or its text from `trainjob_kfp.source(function)`.
        function_args: Arguments of the function, by name.
        manifest: A whole TrainJob, which replaces the other arguments about its content.
        image: Container image; by default the runtime's image.
        command: The program and its first arguments; by default the command of the runtime or of the image.
        args: Further arguments; Kubernetes expands `$(NAME)` in these and in the command.
        env: Environment variables by name; secrets as `SecretKeyReference`.
        code: Folder of the project that travels to the pods, such as `.`, or a `Code`. The project is packed when the
            pipeline is compiled.
        module: Module of the project that is run, such as `package.train`; `args` are its arguments. torchrun starts it
            on a torch runtime, mpirun on an MPI runtime, and Python on all others.
        script: File of the project that is run in the same way, such as `scripts/train.py`.
        num_nodes: Number of training nodes; by default the runtime's number. With a range `[minimum, maximum]`, an
            attempt requests the maximum first, and fewer nodes if they are not free.
        shrink_after: Only with a range: time without a reservation after which the next attempt requests fewer nodes;
            by default 10 minutes. The reservation is that of the Kueue queue, or of the scheduler.
        resources_per_node: Resources of each node, such as `{"gpu": 2, "memory": "64Gi"}`.
        num_proc_per_node: Number of processes on each node; by default one for each GPU, or one without GPUs.
        packages_to_install: Packages that pip installs first.
        pip_index_urls: Package indexes for pip, of which the first is the main index; by default pip's own.
        resume: Whether the function uses transformers' Trainer and can resume. It then can import the callback and the
            function that `trainjob.frameworks.transformers` describes.
        resume_from: Checkpoint of another training from which this one starts; only with `resume` and with
            `find_checkpoint_to_resume`. It is a `ResumeFrom`, a step, or a folder below `/workspace`.
        runtime: Name of the training runtime, or a `Runtime`; by default `torch-distributed`.
        initializer: An `Initializer`: Jobs of the same TrainJob that fetch dataset and model, on runtimes that have
            them.
        workspace: Name of the PersistentVolumeClaim of the steps, mounted at /workspace; or a path, see the overview.
        tracking: Experiment tracker that gets the parameters, and the metrics in the training's log: an `MLflow`,
            `WandB` or `TensorBoard`, or a dict of its fields and `backend` (`mlflow`, `wandb` or `tensorboard`). The
            image must contain Python, and the trainer must have a command.
        watchdog: Limits of the training's silence, and what follows when it hangs: a `Watchdog`, or a dict of its
            fields; by default nobody watches. The image must contain Python, and the trainer must have a command.
        program: Where the code of `tracking`, `watchdog` and `model_check` comes from: `packed` sends it in the command
            of the pods; `image` runs the `trainjob` of the image, with readable arguments; by default `packed`.
        model_check: Folders that must have no model of another workflow run: a `ModelCheck` or a dict of its fields.
            The image must contain Python, and the trainer must have a command.
        max_restarts: How often a failing container may be restarted in place before the TrainJob is ended. In Python
            and files, None (null) leaves it to the runtime.
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
        output_path: `/workspace`; empty if no workspace is mounted.
        result: JSON value that the function returned on rank 0; empty if it returned none.
        tracking_url: Address of the tracked run; empty without `tracking`, or without a page.
    """
    given = locals()
    from trainjob_kfp import component_programs

    return component_programs.train(**given)
