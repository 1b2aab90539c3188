"""Component `train`.

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
def train(
    metrics: dsl.Output[dsl.Metrics],
    runtime: str = "torch-distributed",
    runtime_kind: str = "",
    image: str = "",
    command: List[str] = [],
    args: List[str] = [],
    function: str = "",
    function_args: Dict[str, Any] = {},
    packages_to_install: List[str] = [],
    pip_index_urls: List[str] = [],
    manifest: Dict[str, Any] = {},
    num_nodes: int = 1,
    num_proc_per_node: int = 0,
    resources_per_node: Dict[str, Any] = {},
    workspace: str = "",
    env: Dict[str, Any] = {},
    queue: str = "",
    priority_class: str = "",
    managed_by: str = "",
    deadline: str = "",
    max_restarts: int = 0,
    tracking: Dict[str, Any] = {},
    program: str = "packed",
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
        ("result", str),
        ("tracking_url", str),
    ],
):
    """Run a container, a Python function or a runtime's own training program as a TrainJob.

    Accelerators, CPU, memory, environment, volumes, tolerations, node selector and affinity that are set on the task
    apply to the training pods. The task's own pod only follows the TrainJob. torchrun runs a function on each node.

    `workspace` may be a path at which the task has mounted a claim: `dsl.WORKSPACE_PATH_PLACEHOLDER` for the pipeline's
    own workspace, a path below it, or a path below a volume of `kubernetes.mount_pvc`.

    Args:
        metrics: `seconds`, `gpu_seconds`, `pod_seconds`, `attempts`, and `loss`, `first_loss`, `steps` and `epochs` if
            the log contains them.
        runtime: Name of the training runtime.
        runtime_kind: Kind of the runtime: `TrainingRuntime`, or by default `ClusterTrainingRuntime`.
        image: Image of the training; by default the runtime's.
        command: Command of the training; by default the runtime's.
        args: Arguments of the command; by default the runtime's.
        function: Text of a Python function to run instead of a command, from `trainjob_kfp.source(function)`.
        function_args: Arguments of the function, by name.
        packages_to_install: Packages that pip installs before the function runs.
        pip_index_urls: URLs of pip's package indexes; the first one is the main index.
        manifest: A whole TrainJob as a dict, which replaces the other arguments of the training.
        num_nodes: Number of nodes.
        num_proc_per_node: Number of training processes on each node; 0 means the runtime's default.
        resources_per_node: Resources of each node, such as {"gpu": 2}, in addition to those set on the task.
        workspace: Name of the claim that is mounted at /workspace; or a path, see the overview.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        queue: Name of the Kueue LocalQueue in which the TrainJob waits.
        priority_class: Name of the Kueue WorkloadPriorityClass, which orders admission and preemption.
        managed_by: `kueue.x-k8s.io/multikueue` lets Kueue's MultiKueue run the TrainJob on a worker cluster.
        deadline: Maximum time that the TrainJob may be active, such as `6h`; then the cluster ends it.
        max_restarts: Maximum number of restarts in place of a failing container before the step fails.
        tracking: Experiment tracker, such as {"backend": "mlflow", "tracking_uri": "https://mlflow.example.org"}.
        program: With `tracking`: `packed` sends our code in the command; `image` runs the trainjob in the image.
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
        output_path: `/workspace`; empty if no workspace is mounted.
        result: JSON value that the function returned on rank 0; empty if it returned none.
        tracking_url: Address of the tracked run; empty without `tracking`, and if the tracker has no page.
    """
    from trainjob_kfp import launcher, outputs, steps

    log_summary = outputs.LogSummary()
    with launcher.ExitOnError():
        step = steps.train(
            {
                "runtime": runtime,
                "runtime_kind": runtime_kind,
                "image": image,
                "command": command,
                "args": args,
                "function": function,
                "function_args": function_args,
                "packages_to_install": packages_to_install,
                "pip_index_urls": pip_index_urls,
                "manifest": manifest,
                "num_nodes": num_nodes,
                "num_proc_per_node": num_proc_per_node,
                "resources_per_node": resources_per_node,
                "workspace": workspace,
                "env": env,
                "queue": queue,
                "priority_class": priority_class,
                "managed_by": managed_by,
                "deadline": deadline,
                "max_restarts": max_restarts,
                "tracking": tracking,
                "program": program,
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
        common = outputs.build_outputs(outcome, "/workspace" if workspace else "", getattr(step, "workspace", None))
        return (*common, log_summary.result_json, log_summary.tracking_url)
