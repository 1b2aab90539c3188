"""Component `export_model`.

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
def export_model(
    workspace: str,
    model: dsl.Output[dsl.Model],
    destination: str = "",
    output_path: str = "",
    adapter: str = "merge",
    secret: str = "",
    endpoint: str = "",
    region: str = "",
    metadata: Dict[str, Any] = {},
    registry: Dict[str, Any] = {},
    env: Dict[str, Any] = {},
    image: str = "",
    program: str = "packed",
    resources: Dict[str, Any] = {},
    queue: str = "",
    priority_class: str = "",
    deadline: str = "",
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
    [("job", str), ("namespace", str), ("uid", str), ("status", str), ("workspace", str), ("output_path", str)],
):
    """Export the final checkpoint in `/workspace/output` as a Hugging Face folder.

    A TrainJob writes it directly to the destination, so that no file of the model passes through the task's own pod.
    Without a destination, it writes to the location of the artifact `model`, below the pipeline's root. This location
    must begin with s3:// or gs://, or with minio:// if `endpoint` is given.

    A checkpoint of another run is refused; see `after_jobs`. With `after_jobs`, the step may be cached.

    `workspace` may be a path at which the task has mounted a claim: `dsl.WORKSPACE_PATH_PLACEHOLDER` for the pipeline's
    own workspace, a path below it, or a path below a volume of `kubernetes.mount_pvc`.

    Args:
        workspace: Name of the claim that the steps share, mounted at /workspace; or a path, see the overview.
        model: Artifact of the exported model with its location, digest, size and training metrics.
        destination: An address, such as s3://BUCKET/PATH, or a path below /workspace; see the overview.
        output_path: Folder of the checkpoints below /workspace/output; the same as `output_path` of the fine-tuning.
        adapter: Export of a LoRA training: `merge` for the merged model if there is one, `keep` for the adapter alone.
        secret: Name of the Kubernetes Secret with the credentials for `destination`.
        endpoint: URL of an object store other than AWS, Google or Azure.
        region: Region of an S3 bucket.
        metadata: Values to add to the export's manifest.json, such as base model and dataset.
        registry: Registry: {"server": URL, "model": NAME} or {"backend": "mlflow", "tracking_uri": URL, "model": NAME}.
        env: Environment variables of the containers: text, or {"name": SECRET, "key": KEY} for a key of a Secret.
        image: Image with Python, huggingface_hub and opendal; by default Kubeflow Trainer's model initializer.
        program: `packed` sends the code of the step in its command; `image` runs the trainjob in the image.
        resources: Resources that the step needs, such as {"memory": "4Gi"}, in addition to those set on the task.
        queue: Name of the Kueue LocalQueue in which the TrainJob waits.
        priority_class: Name of the Kueue WorkloadPriorityClass, which orders admission and preemption.
        deadline: Maximum time that the TrainJob may be active, such as `6h`; then the cluster ends it.
        after_jobs: Output `job` of earlier steps, one of which must have trained the model; by default any of this run.
        any_run: Whether to export the model of any run.
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
        output_path: Location of the exported model.
    """
    from trainjob_kfp import launcher, model_location, outputs, steps

    log_summary = outputs.LogSummary()
    with launcher.ExitOnError():
        place = model_location.choose_destination(model.uri, destination, endpoint)
        step = steps.export_model(
            {
                "workspace": workspace,
                "destination": place,
                "output_path": output_path,
                "adapter": adapter,
                "secret": secret,
                "endpoint": endpoint,
                "region": region,
                "metadata": metadata,
                "registry": registry,
                "env": env,
                "image": image,
                "program": program,
                "resources": resources,
                "queue": queue,
                "priority_class": priority_class,
                "deadline": deadline,
                "after_jobs": after_jobs,
                "any_run": any_run,
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
        model_location.update_artifact(model, outcome, place, log_summary.step_result)
        return outputs.build_outputs(outcome, place, step.workspace)
