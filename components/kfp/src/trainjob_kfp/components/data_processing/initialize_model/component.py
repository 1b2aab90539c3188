"""Component `initialize_model`.

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
    program: str = "packed",
    resources: Dict[str, Any] = {},
    queue: str = "",
    priority_class: str = "",
    deadline: str = "",
    namespace: str = "",
    on_kill: str = "delete",
    delete_with_run: bool = False,
    interruption_retries: int = 3,
    attempts: int = 1,
    task_config: dsl.TaskConfig = None,
) -> NamedTuple(
    "Outputs",
    [("job", str), ("namespace", str), ("uid", str), ("status", str), ("workspace", str), ("output_path", str)],
):
    """Fetch a model into `/workspace/model` with a TrainJob.

    The TrainJob runs in the image of Kubeflow Trainer's model initializer. Credentials, queues, logs and retries work
    as in the other components. Later steps read the model from that folder.

    `workspace` may be a path at which the task has mounted a claim: `dsl.WORKSPACE_PATH_PLACEHOLDER` for the pipeline's
    own workspace, a path below it, or a path below a volume of `kubernetes.mount_pvc`.

    Args:
        storage_uri: Location of the model: hf://ORGANIZATION/NAME, s3:// or gs://BUCKET/PATH, az://CONTAINER/PATH.
        workspace: Name of the claim that the steps share, mounted at /workspace; or a path, see the overview.
        secret: Name of the Kubernetes Secret with the credentials for `storage_uri`.
        revision: Branch, tag or commit of a repository on the Hub; by default the newest commit.
        ignore_patterns: Glob patterns of the files that are not fetched; by default weights in other formats.
        endpoint: URL of an object store other than AWS, Google or Azure, or of the Hub.
        region: Region of an S3 bucket.
        role_arn: ARN of the AWS role to assume.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        image: Image with Python, huggingface_hub and opendal; by default Kubeflow Trainer's initializer.
        program: `packed` sends the code of the step in its command; `image` runs the trainjob in the image.
        resources: Resources that the step needs, such as {"memory": "4Gi"}, in addition to those set on the task.
        queue: Name of the Kueue LocalQueue in which the TrainJob waits.
        priority_class: Name of the Kueue WorkloadPriorityClass, which orders admission and preemption.
        deadline: Maximum time that the TrainJob may be active, such as `6h`; then the cluster ends it.
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
        output_path: Folder of the model: `/workspace/model`.
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
                "program": program,
                "resources": resources,
                "queue": queue,
                "priority_class": priority_class,
                "deadline": deadline,
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
        )
        return outputs.build_outputs(outcome, "/workspace/model", step.workspace)
