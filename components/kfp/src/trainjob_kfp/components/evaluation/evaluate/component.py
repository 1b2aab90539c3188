"""Component `evaluate`.

Kubeflow Pipelines sends only the function's source, and evaluates its annotations immediately. The annotations are
therefore not postponed, and the body uses no name of this module. A default that is empty or 0 means that the argument
is not given.
"""
# ruff: noqa: B006, UP006, UP035
# mypy: disable-error-code="valid-type,untyped-decorator"

from typing import Any, Dict, List, NamedTuple

from kfp import dsl

from trainjob_kfp.packaging import trainjob_component


@trainjob_component
def evaluate(
    function: str,
    metric: str,
    minimum: float,
    metrics: dsl.Output[dsl.Metrics],
    function_args: Dict[str, Any] = {},
    packages_to_install: List[str] = [],
    pip_index_urls: List[str] = [],
    workspace: str = "",
    runtime: str = "torch-distributed",
    runtime_kind: str = "",
    image: str = "",
    num_nodes: int = 1,
    num_proc_per_node: int = 0,
    resources_per_node: Dict[str, Any] = {},
    env: Dict[str, Any] = {},
    queue: str = "",
    priority_class: str = "",
    deadline: str = "",
    max_restarts: int = 0,
    after_jobs: List[str] = [],
    any_run: bool = False,
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
        ("score", float),
        ("passed", bool),
    ],
):
    """Score the content of a workspace with a function, and compare a score to a minimum.

    The function runs in a TrainJob under torchrun, on each node. The dict that rank 0 returns has the scores by name,
    such as {"exact_match": 0.98}. Settings on the task apply to the TrainJob's pods.

    The step succeeds with any score. To run the next steps only after a good score, create them inside
    `with dsl.If(evaluated.outputs["passed"] == True):`. `kfp.local` 2.17 evaluates such a condition as false. There,
    pass `passed` to a nested pipeline that contains the `dsl.If`.

    A model in a folder that `function_args` or `env` names must be of this run; see `after_jobs`. With
    `after_jobs`, the step may be cached.

    `workspace` may be a path at which the task has mounted a claim: `dsl.WORKSPACE_PATH_PLACEHOLDER` for the pipeline's
    own workspace, a path below it, or a path below a volume of `kubernetes.mount_pvc`.

    Args:
        function: Text of a function that returns a dict of scores, from `trainjob_kfp.source(function)`.
        metric: Name of the score to compare.
        minimum: Smallest value of the score that is good enough.
        metrics: All scores that the function returned, and `attempts`.
        function_args: Arguments of the function, by name.
        packages_to_install: Packages that pip installs before the function runs.
        pip_index_urls: URLs of pip's package indexes; the first one is the main index.
        workspace: Name of the claim that is mounted at /workspace; or a path, see the overview.
        runtime: Name of the training runtime.
        runtime_kind: Kind of the runtime: `TrainingRuntime`, or by default `ClusterTrainingRuntime`.
        image: Image of the evaluation; by default the runtime's.
        num_nodes: Number of nodes.
        num_proc_per_node: Number of processes on each node; 0 means the runtime's default.
        resources_per_node: Resources of each node, such as {"gpu": 2}, in addition to those set on the task.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        queue: Name of the Kueue LocalQueue in which the TrainJob waits.
        priority_class: Name of the Kueue WorkloadPriorityClass, which orders admission and preemption.
        deadline: Maximum time that the TrainJob may be active, such as `6h`; then the cluster ends it.
        max_restarts: Maximum number of restarts in place of a failing container before the step fails.
        after_jobs: Output `job` of earlier steps; a model that one of them trained is accepted, also of another run.
        any_run: Whether the model may be of any run.
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
        score: Value of the score `metric`.
        passed: Whether the score is at least `minimum`.
    """
    from trainjob_kfp import launcher, outputs, steps

    log_summary = outputs.LogSummary()
    with launcher.ExitOnError():
        step = steps.evaluate(
            {
                "function": function,
                "function_args": function_args,
                "packages_to_install": packages_to_install,
                "pip_index_urls": pip_index_urls,
                "workspace": workspace,
                "runtime": runtime,
                "runtime_kind": runtime_kind,
                "image": image,
                "num_nodes": num_nodes,
                "num_proc_per_node": num_proc_per_node,
                "resources_per_node": resources_per_node,
                "env": env,
                "queue": queue,
                "priority_class": priority_class,
                "deadline": deadline,
                "after_jobs": after_jobs,
                "any_run": any_run,
                "max_restarts": max_restarts,
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
            on_line=log_summary.read_line,
        )
        score, passed = outputs.log_scores(log_summary, metric, minimum, metrics)
        return (*outputs.build_outputs(outcome, "/workspace" if workspace else "", step.workspace), score, passed)
