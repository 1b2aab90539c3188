"""Train, as a pipeline step.

Kubeflow Pipelines ships the function's source alone and reads its annotations at once: so these are not postponed, and
the body uses no name of this module. Defaults that are empty or 0 stand for "not given".
"""
# ruff: noqa: B006, UP006, UP035
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
        ("result", str),
    ],
):
    """Run a training of your own as a TrainJob: a container, a Python function, or what a runtime brings itself.

    Accelerators, CPU, memory, environment, volumes, tolerations, node selector and affinity that are set on the task go
    to the training pods; the task's own pod only follows the training. torchrun runs a function on each node.

    `workspace` may be a path at which the task has a claim: `dsl.WORKSPACE_PATH_PLACEHOLDER`, where the pipeline has a
    workspace of its own, a path below it, or one below a volume of `kubernetes.mount_pvc`.

    Args:
        metrics: As far as the log tells them: `loss`, `first_loss`, `steps`, `epochs`; and the `seconds` in all.
        runtime: Training runtime to run on.
        runtime_kind: `TrainingRuntime` for one in the TrainJob's namespace; by default `ClusterTrainingRuntime`.
        image: Image to train in; by default the runtime's.
        command: Command of the training; by default the runtime's.
        args: Arguments of the command; by default the runtime's.
        function: In place of a command: the text of a Python function, from `trainjob_kfp.source(function)`.
        function_args: Arguments that the function is called with, by name.
        packages_to_install: What pip installs before the function runs.
        pip_index_urls: Where pip looks; the first one as its index.
        manifest: In place of all of these: a TrainJob that is written already, as for kubectl.
        num_nodes: Nodes to train on.
        num_proc_per_node: Training processes on each node; 0 leaves it to the runtime.
        resources_per_node: What each node needs, such as {"gpu": 2, "memory": "64Gi"}, besides what is set on the task.
        workspace: Claim to mount at /workspace; or a path where the task has it, see the overview.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        queue: Name of the Kueue LocalQueue to wait in.
        priority_class: Kueue's WorkloadPriorityClass: who is admitted first, and who has to go for others.
        managed_by: `kueue.x-k8s.io/multikueue` leaves it to Kueue's MultiKueue, which runs it on a worker cluster.
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
        result: What the function returned with rank 0, as JSON; empty when it returned nothing.
    """
    from trainjob_kfp import launcher, outputs, steps

    account = outputs.LogSummary()
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
            on_progress=account.points.append,
            on_line=account.read_line,
        )
        outputs.log_training_metrics(outcome, account, metrics)
        made = outputs.build_outputs(outcome, "/workspace" if workspace else "", getattr(step, "workspace", None))
        return (*made, account.result_json)
