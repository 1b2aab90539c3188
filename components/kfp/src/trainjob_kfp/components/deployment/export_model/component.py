"""Export model, as a pipeline step.

Kubeflow Pipelines ships the function's source alone and reads its annotations at once: so these are not postponed, and
the body uses no name of this module. Defaults that are empty or 0 stand for "not given".
"""
# ruff: noqa: B006, UP006, UP035
# mypy: disable-error-code="valid-type,untyped-decorator"

from typing import Any, Dict, NamedTuple

from kfp import dsl

from trainjob_kfp.packaging import trainjob_component


@trainjob_component
def export_model(
    workspace: str,
    model: dsl.Output[dsl.Model],
    destination: str = "",
    output_path: str = "",
    secret: str = "",
    endpoint: str = "",
    region: str = "",
    metadata: Dict[str, Any] = {},
    registry: Dict[str, Any] = {},
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
    """Make one clean Hugging Face folder of the final checkpoint in `/workspace/output` and send it, with a TrainJob.

    The TrainJob writes straight to the destination; the task's own pod sees none of the model's files. Without a
    destination it writes to the place of the artifact `model`, below the pipeline's root: where that is s3://, gs://,
    or, with `endpoint`, minio://.

    `workspace` may be a path at which the task has a claim: `dsl.WORKSPACE_PATH_PLACEHOLDER`, where the pipeline has a
    workspace of its own, a path below it, or one below a volume of `kubernetes.mount_pvc`.

    Args:
        workspace: Claim that the steps share, mounted at /workspace; or a path where the task has it, see the overview.
        model: The exported model: where it is, its digest, size and training metrics; nothing is copied for it.
        destination: s3://, gs://BUCKET/PATH, hf://ORGANIZATION/NAME, a path below /workspace; or `model`'s own place.
        output_path: Where the checkpoints are below /workspace/output, as the fine-tuning was told.
        secret: Name of the Kubernetes Secret with the credentials for `destination`; never the credentials themselves.
        endpoint: URL of the object store, where it is not AWS or Google.
        region: Region of an S3 bucket.
        metadata: What the export's manifest.json is to say besides, such as base model and dataset.
        registry: Kubeflow Model Registry to tell: {"server": URL, "model": NAME}, also version, author and secret.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        image: Image with Python, huggingface_hub and opendal; by default Kubeflow Trainer's model initializer.
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
        output_path: Where the model is: `destination`.
    """
    from trainjob_kfp import launcher, model_location, outputs, steps

    account = outputs.LogSummary()
    with launcher.ExitOnError():
        place = model_location.choose_destination(model.uri, destination, endpoint)
        step = steps.export_model(
            {
                "workspace": workspace,
                "destination": place,
                "output_path": output_path,
                "secret": secret,
                "endpoint": endpoint,
                "region": region,
                "metadata": metadata,
                "registry": registry,
                "env": env,
                "image": image,
                "resources": resources,
                "queue": queue,
                "priority_class": priority_class,
                "deadline_seconds": deadline_seconds,
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
        model_location.update_artifact(model, outcome, place, account.step_result)
        return outputs.build_outputs(outcome, place, step.workspace)
