"""Train, as a pipeline step.

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
def train(
    runtime: str = "torch-distributed",
    image: str = "",
    command: List[str] = [],
    args: List[str] = [],
    num_nodes: int = 1,
    num_proc_per_node: int = 0,
    resources_per_node: Dict[str, Any] = {},
    workspace: str = "",
    env: Dict[str, Any] = {},
    queue: str = "",
    deadline_seconds: int = 0,
    max_restarts: int = 0,
    namespace: str = "",
    keep_on_kill: bool = False,
    task_config: dsl.TaskConfig = None,
) -> NamedTuple("Outputs", [("job", str), ("namespace", str), ("uid", str), ("status", str), ("output_path", str)]):
    """Run a training of your own as a TrainJob: a container, or what a runtime brings itself.

    Accelerators, CPU, memory, environment, tolerations, node selector and affinity that are set on the task go to the
    training pods; the task's own pod only follows the training.

    Args:
        runtime: ClusterTrainingRuntime to run on.
        image: Image to train in; by default the runtime's.
        command: Command of the training; by default the runtime's.
        args: Arguments of the command; by default the runtime's.
        num_nodes: Nodes to train on.
        num_proc_per_node: Training processes on each node; 0 leaves it to the runtime.
        resources_per_node: What each node needs, such as {"gpu": 2, "memory": "64Gi"}, besides what is set on the task.
        workspace: Name of a PersistentVolumeClaim to mount at /workspace.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        queue: Name of the Kueue LocalQueue to wait in.
        deadline_seconds: Longest time the TrainJob may be active; the cluster ends it then. 0 means no limit.
        max_restarts: How often a failing container may be restarted in place before the step fails.
        namespace: Namespace of the TrainJob; by default the pipeline's own.
        keep_on_kill: Leave the TrainJob running when the task is terminated; by default it is deleted.
        task_config: What is set on the task for its pods; Kubeflow Pipelines fills it in.

    Returns:
        Name, namespace, uid and status of the TrainJob, and the output's path: `/workspace` or empty.
    """
    from trainjob_kfp import launcher, steps

    with launcher.Explained():
        step = steps.train(
            {
                "runtime": runtime,
                "image": image,
                "command": command,
                "args": args,
                "num_nodes": num_nodes,
                "num_proc_per_node": num_proc_per_node,
                "resources_per_node": resources_per_node,
                "workspace": workspace,
                "env": env,
                "queue": queue,
                "deadline_seconds": deadline_seconds,
                "max_restarts": max_restarts,
            },
            task_config,
        )
        outcome = launcher.launch(step, namespace=namespace, keep_on_kill=keep_on_kill)
        return launcher.outputs(outcome, "/workspace" if workspace else "")
