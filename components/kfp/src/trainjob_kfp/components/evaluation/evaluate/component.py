"""Evaluate, as a pipeline step.

Kubeflow Pipelines ships the function's source alone and reads its annotations at once: so these are not postponed, and
the body uses no name of this module. Defaults that are empty or 0 stand for "not given".
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
    deadline_seconds: int = 0,
    max_restarts: int = 0,
    namespace: str = "",
    on_kill: str = "delete",
    delete_with_run: bool = False,
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
    """Score what a workspace holds with a function of your own, in a TrainJob, and say whether it is good enough.

    The step succeeds whatever the score is: `with dsl.If(evaluated.outputs["passed"] == True):` lets the next steps
    happen or not. (`kfp.local` 2.17 takes such a condition for false: there, hand `passed` to a pipeline within the
    pipeline that has the `dsl.If`.) What is set on the task goes to the evaluating pods. The function returns numbers
    by name, such as {"exact_match": 0.98}; torchrun runs it on each node, and what rank 0 returns counts.

    `workspace` may be a path at which the task has a claim: `dsl.WORKSPACE_PATH_PLACEHOLDER`, where the pipeline has a
    workspace of its own, a path below it, or one below a volume of `kubernetes.mount_pvc`.

    Args:
        function: Text of a Python function that returns numbers by name, from `trainjob_kfp.source(function)`.
        metric: Name of the number that decides.
        minimum: The least of it that is enough.
        metrics: All the numbers that the function returned.
        function_args: Arguments that the function is called with, by name.
        packages_to_install: What pip installs before the function runs.
        pip_index_urls: Where pip looks; the first one as its index.
        workspace: Claim to mount at /workspace; or a path where the task has it, see the overview.
        runtime: Training runtime to run on.
        runtime_kind: `TrainingRuntime` for one in the TrainJob's namespace; by default `ClusterTrainingRuntime`.
        image: Image to evaluate in; by default the runtime's.
        num_nodes: Nodes to evaluate on.
        num_proc_per_node: Processes on each node; 0 leaves it to the runtime.
        resources_per_node: What each node needs, such as {"gpu": 2, "memory": "64Gi"}, besides what is set on the task.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        queue: Name of the Kueue LocalQueue to wait in.
        priority_class: Kueue's WorkloadPriorityClass: who is admitted first, and who has to go for others.
        deadline_seconds: Longest time the TrainJob may be active; the cluster ends it then. 0 means no limit.
        max_restarts: How often a failing container may be restarted in place before the step fails.
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
        output_path: `/workspace`; empty without one.
        score: The number that decides.
        passed: Whether it is at least `minimum`.
    """
    from trainjob_kfp import launcher, outputs, steps

    account = outputs.LogSummary()
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
                "deadline_seconds": deadline_seconds,
                "max_restarts": max_restarts,
            },
            task_config,
        )
        outcome = launcher.launch(
            step,
            namespace=namespace,
            on_kill=on_kill,
            delete_with_run=delete_with_run,
            on_line=account.read_line,
        )
        score, passed = outputs.log_scores(account, metric, minimum, metrics)
        return (*outputs.build_outputs(outcome, "/workspace" if workspace else "", step.workspace), score, passed)
