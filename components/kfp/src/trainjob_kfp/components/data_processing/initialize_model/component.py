"""Initialize model, as a pipeline step.

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
def initialize_model(
    storage_uri: str,
    workspace: str,
    secret: str = "",
    ignore_patterns: List[str] = [],
    endpoint: str = "",
    region: str = "",
    role_arn: str = "",
    env: Dict[str, Any] = {},
    queue: str = "",
    deadline_seconds: int = 0,
    namespace: str = "",
    keep_on_kill: bool = False,
    task_config: dsl.TaskConfig = None,
) -> NamedTuple("Outputs", [("job", str), ("namespace", str), ("uid", str), ("status", str), ("output_path", str)]):
    """Fetch a model into `/workspace/model` with a TrainJob.

    It runs Kubeflow Trainer's model initializer, so that credentials, queueing, logs and retries are those of every
    other step, and the model lies where the later steps look for it.

    Args:
        storage_uri: Where the model comes from: hf://ORGANIZATION/NAME or s3://BUCKET/PATH.
        workspace: Name of the PersistentVolumeClaim that the steps share; mounted at /workspace.
        secret: Name of the Kubernetes Secret with the credentials for `storage_uri`; never the credentials themselves.
        ignore_patterns: Files not to fetch, as glob patterns.
        endpoint: URL of the object store, where it is not AWS.
        region: Region of the bucket.
        role_arn: AWS role to assume.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        queue: Name of the Kueue LocalQueue to wait in.
        deadline_seconds: Longest time the TrainJob may be active; the cluster ends it then. 0 means no limit.
        namespace: Namespace of the TrainJob; by default the pipeline's own.
        keep_on_kill: Leave the TrainJob running when the task is terminated; by default it is deleted.
        task_config: What is set on the task for its pods; Kubeflow Pipelines fills it in.

    Returns:
        Name, namespace, uid and status of the TrainJob, and the output's path: `/workspace/model`.
    """
    from trainjob_kfp import launcher, steps

    with launcher.Explained():
        step = steps.initialize_model(
            {
                "storage_uri": storage_uri,
                "workspace": workspace,
                "secret": secret,
                "ignore_patterns": ignore_patterns,
                "endpoint": endpoint,
                "region": region,
                "role_arn": role_arn,
                "env": env,
                "queue": queue,
                "deadline_seconds": deadline_seconds,
            },
            task_config,
        )
        outcome = launcher.launch(step, namespace=namespace, keep_on_kill=keep_on_kill)
        return launcher.outputs(outcome, "/workspace/model")
