"""Initialize model, as a pipeline step.

Kubeflow Pipelines ships the function's source alone and reads its annotations at once: so these are not postponed, and
the body uses no name of this module. Defaults that are empty or 0 stand for "not given".
"""
# ruff: noqa: B006, UP006, UP035
# mypy: disable-error-code="valid-type,untyped-decorator"

from typing import Any, Dict, List, NamedTuple

from kfp import dsl

from trainjob_kfp.packaging import trainjob_component


@trainjob_component
def initialize_model(
    storage_uri: str,
    workspace: str,
    secret: str = "",
    revision: str = "",
    ignore_patterns: List[str] = [],
    endpoint: str = "",
    region: str = "",
    role_arn: str = "",
    env: Dict[str, Any] = {},
    image: str = "",
    resources: Dict[str, Any] = {},
    queue: str = "",
    priority_class: str = "",
    deadline_seconds: int = 0,
    namespace: str = "",
    on_kill: str = "delete",
    delete_with_run: bool = False,
    task_config: dsl.TaskConfig = None,
) -> NamedTuple(
    "Outputs",
    [("job", str), ("namespace", str), ("uid", str), ("status", str), ("workspace", str), ("output_path", str)],
):
    """Fetch a model into `/workspace/model` with a TrainJob.

    It runs in Kubeflow Trainer's initializer image, so that credentials, queueing, logs and retries are those of every
    other step, and the model lies where the later steps look for it.

    `workspace` may be a path at which the task has a claim: `dsl.WORKSPACE_PATH_PLACEHOLDER`, where the pipeline has a
    workspace of its own, a path below it, or one below a volume of `kubernetes.mount_pvc`.

    Args:
        storage_uri: Where the model comes from: hf://ORGANIZATION/NAME, s3:// or gs://BUCKET/PATH.
        workspace: Claim that the steps share, mounted at /workspace; or a path where the task has it, see the overview.
        secret: Name of the Kubernetes Secret with the credentials for `storage_uri`; never the credentials themselves.
        revision: Revision of a repository on the Hub: a branch, a tag or a commit; by default the newest commit.
        ignore_patterns: Files not to fetch, as glob patterns. By default checkpoints of other frameworks.
        endpoint: URL of the object store, where it is not AWS or Google, or the Hub's.
        region: Region of an S3 bucket.
        role_arn: AWS role to assume.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        image: Image with Python, huggingface_hub and opendal; by default Kubeflow Trainer's initializer.
        resources: What the step needs, such as {"memory": "4Gi"}, besides what is set on the task.
        queue: Name of the Kueue LocalQueue to wait in.
        priority_class: Kueue's WorkloadPriorityClass: who is admitted first, and who has to go for others.
        deadline_seconds: Longest time the TrainJob may be active; the cluster ends it then. 0 means no limit.
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
        output_path: Where the model is: `/workspace/model`.
    """
    from trainjob_kfp import launcher, outputs, steps

    with launcher.ExitOnError():
        step = steps.initialize_model(
            {
                "storage_uri": storage_uri,
                "workspace": workspace,
                "secret": secret,
                "revision": revision,
                "ignore_patterns": ignore_patterns,
                "endpoint": endpoint,
                "region": region,
                "role_arn": role_arn,
                "env": env,
                "image": image,
                "resources": resources,
                "queue": queue,
                "priority_class": priority_class,
                "deadline_seconds": deadline_seconds,
            },
            task_config,
        )
        outcome = launcher.launch(step, namespace=namespace, on_kill=on_kill, delete_with_run=delete_with_run)
        return outputs.build_outputs(outcome, "/workspace/model", step.workspace)
