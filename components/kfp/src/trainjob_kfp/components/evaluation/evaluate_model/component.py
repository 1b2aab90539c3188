"""Component `evaluate_model`.

Written by tools/parameters from the classes in `trainjob.spec`: run `make reference`.

Kubeflow Pipelines sends only the function's source, and evaluates its annotations immediately. The annotations are
therefore not postponed, and the body uses no name of this module.
"""
# ruff: noqa: B006, UP006, UP035
# mypy: disable-error-code="valid-type,untyped-decorator"

from typing import Any, Dict, List, NamedTuple

from kfp import dsl

from trainjob_kfp.packaging import trainjob_component


@trainjob_component
def evaluate_model(
    workspace: str,
    metrics: dsl.Output[dsl.Metrics],
    summary: dsl.Output[dsl.Markdown],
    tasks: List[str] = [],
    held_out: str = "",
    function: str = "",
    model_path: str = "export",
    champion_path: str = "",
    champion: Dict[str, Any] = {},
    allow_missing_champion: bool = False,
    task_path: str = "",
    gates: Dict[str, Any] = {},
    limit: int = 0,
    num_fewshot: int = 0,
    chat_template: bool = False,
    generation: Dict[str, Any] = {},
    batch_size: int = 8,
    precision: str = "auto",
    seed: int = 0,
    confidence: float = 0.95,
    output_path: str = "evaluation",
    image: str = "",
    resources: Dict[str, Any] = {},
    tracking: Dict[str, Any] = {},
    after_jobs: List[str] = [],
    any_run: bool = False,
    env: Dict[str, Any] = {},
    secret: Dict[str, Any] = {},
    program: str = "packed",
    name: str = "",
    labels: Dict[str, Any] = {},
    annotations: Dict[str, Any] = {},
    deadline: str = "",
    queue: Dict[str, Any] = {},
    placement: Dict[str, Any] = {},
    volumes: List[Dict[str, Any]] = [],
    managed_by: str = "",
    suspend: bool = False,
    runtime_patches: List[Dict[str, Any]] = [],
    queue_timeout: str = "",
    start_timeout: str = "",
    interruption_retries: int = 3,
    on_kill: str = "delete",
    on_failure: str = "delete",
    ttl_after_success: str = "",
    ttl_after_failure: str = "",
    namespace: str = "",
    delete_with_run: bool = False,
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
        ("passed", bool),
        ("report", str),
    ],
):
    """Score a model with tasks, held-out rows or a function, and compare it with a champion.

    A gate that fails is a result and no error. To run the next steps only after a good score, create them inside `with
    dsl.If(evaluated.outputs["passed"] == True):`. `kfp.local` 2.17 evaluates such a condition as false. There, pass
    `passed` to a nested pipeline that contains the `dsl.If`.

    A model of another run is refused; see `after_jobs`. With `after_jobs`, the step may be cached.

    An input whose default is empty or 0 is not given then. Where a description names a class, give a dict of its
    fields; a text for `queue`, `runtime` or `secret` means the name.

    `workspace` may also be a path at which the task has mounted a PersistentVolumeClaim. It is
    `dsl.WORKSPACE_PATH_PLACEHOLDER` for the pipeline's own workspace, a path below it, or a path below a volume of
    `kubernetes.mount_pvc`.

    Args:
        workspace: Name of the PersistentVolumeClaim of the steps, mounted at /workspace; or a path, see the overview.
        metrics: All scores, those of the champion and the differences (`champion_` and `difference_` before the name),
            and `attempts`.
        summary: Page with the scores of both models, their differences, and the gates.
        tasks: Names of the tasks of lm-evaluation-harness 0.4.13, such as `arc_easy`, or of your own task files.
        held_out: File or folder below `/workspace` with rows for the loss, such as `dataset/eval`: JSON Lines or
            Parquet with `prompt` and `completion`, `messages`, or `text`. The metrics are `held_out/loss` by token and
            `held_out/bits_per_byte`.
        function: Function such as `score(model_path)` that scores a model, or its text. It returns numbers by metric,
            or a list of such dicts, one for each row, which is compared row by row. A larger value is a better one. The
            metrics are `FUNCTION/METRIC`. Its source is sent, so it must import what it needs.
        model_path: Folder of the model below `/workspace`, such as the path to which a step has exported it; by default
            `export`.
        champion_path: Folder of the model to compare with, below `/workspace`; by default there is no comparison. Both
            are scored on the same rows, and compared row by row.
        champion: The model to compare with if it is no folder of the workspace: a `Champion`, or a dict of its fields.
        allow_missing_champion: Whether gates that compare have passed while there is no champion yet, as in the first
            run of a workflow that promotes. Otherwise the step fails.
        task_path: Folder with your own task files in YAML, below `/workspace`. Paths in these files are relative to
            `/workspace`, such as `dataset/eval/eval.jsonl`.
        gates: A `Gate`, or a dict of its fields, by metric: task and metric as in `arc_easy/acc`, with the filter after
            a comma if it has one, as in `gsm8k/exact_match,strict-match`; `held_out/loss`; or function and metric.
        limit: Number of rows of each task, and of the held-out ones; by default all.
        num_fewshot: Number of solved examples before each row; by default the task's own.
        chat_template: Whether prompts get the form of the tokenizer's chat template.
        generation: Arguments of the generation, such as `{"max_gen_toks": 64}`, in addition to the task's own.
        batch_size: Number of rows at once; by default `8`.
        precision: Data type of the weights: `auto` (as the model's configuration says), `fp32`, `bf16` or `fp16`; by
            default `auto`.
        seed: Seed of examples and generation.
        confidence: Confidence level of the differences' intervals; by default `0.95`.
        output_path: Folder of the results below `/workspace`: `report.json`, and the samples of each task. Evaluations
            that share a workspace each need their own folder. By default `evaluation`.
        image: Image with torch; by default the runtime's. pip installs what else tasks and held-out rows need, with
            fixed versions. A function alone needs only what it imports, and numpy if there is a champion.
        resources: Resources of the step's pod, such as `{"gpu": 1, "memory": "32Gi"}`. With several GPUs, the layers of
            the model are divided among them.
        tracking: Experiment tracker that gets the scores of both models, and their differences: an `MLflow`, `WandB` or
            `TensorBoard`, or a dict of its fields with `backend`.
        after_jobs: Names of TrainJobs, one of which must have trained the model; by default any one of the same
            workflow run. A model without a record of its TrainJob is always accepted, and so is the champion.
        any_run: Whether to evaluate the model of any workflow run.
        env: Environment variables by name; secrets as `SecretKeyReference`.
        secret: Name of the Kubernetes Secret with the credentials, or a `SecretReference`.
        program: Where the code of the step's program comes from. `packed` sends it in the command of the pods, so that
            any image with Python runs it. `image` runs the `trainjob` of the image, with readable arguments. By default
            `packed`.
        name: Start of the TrainJob's name, at most 24 lower case letters, digits and -; by default the task's name.
        labels: Labels of the TrainJob and of its pods, for example for cost reports. They are part of the request: a
            later try with other labels does not adopt the TrainJob. Kueue's own labels are not added to the pods.
        annotations: Annotations of the TrainJob and of its pods, in the same way.
        deadline: Maximum time that the TrainJob may be active, such as `6h`, without its time in the queue; then the
            cluster ends it. A duration is a timedelta, a number of seconds, or a text such as `6h` or `PT6H`.
        queue: Name of the Kueue LocalQueue in which the TrainJob waits for quota, or a `Queue` with a priority class or
            a topology.
        placement: A `Placement` of the pods: nodes, service account, image pull secrets and security contexts.
        volumes: `Volume`s that the pods mount besides the workspace, for example for shared memory.
        managed_by: Controller that acts on the TrainJob; by default this cluster's Trainer. With
            `kueue.x-k8s.io/multikueue`, Kueue's MultiKueue runs it on a worker cluster. That needs Trainer 2.3, because
            an older one also runs it on this cluster.
        suspend: Whether the TrainJob is created suspended, so that it has no pods until somebody resumes it.
        runtime_patches: Patches of the runtime as in `spec.runtimePatches`, for what no other field says; they are
            applied after those of the other fields. Trainer 2.2 and later.
        queue_timeout: Maximum time that the TrainJob may wait in a queue or be suspended, by the cluster's times, such
            as `8h`; by default there is no limit.
        start_timeout: Maximum time after the queue until all pods of the training are ready, in the same way.
        interruption_retries: How often another attempt starts after the infrastructure has interrupted the TrainJob,
            for example by an eviction, a preemption or a drain. These attempts do not count as retries of the workflow
            engine. With 0, an interruption is a failure. By default `3`.
        on_kill: Action on a terminated task's TrainJob: `delete`, `keep`, or `keep_on_drain` (keep after a drain); by
            default `delete`.
        on_failure: Action on the TrainJob when it is ended because of its restarts, or because it cannot start:
            `delete`, `suspend` (its pods are deleted, its PersistentVolumeClaims are retained) or `keep` (its pods are
            retained until the next try). A TrainJob that the cluster itself ends is always retained. By default
            `delete`.
        ttl_after_success: Time for which the TrainJob is retained after it is complete, such as `7d`, until a sweep
            deletes it; by default the sweep's own `finished_for`. No controller in the cluster acts on it.
        ttl_after_failure: The same time after it has failed.
        namespace: Namespace of the TrainJob; by default the pipeline's own.
        delete_with_run: Whether a finished TrainJob, too, is deleted along with the run's Workflow.
        attempts: Number of TrainJobs that may fail, with pauses of 10 s to 5 min, before the step fails; by default
            `1`.
        task_config: Settings of the task for its pods; Kubeflow Pipelines sets this value.

    Returns:
        job: Name of the TrainJob.
        namespace: Namespace of the TrainJob.
        uid: UID of the TrainJob.
        status: `Complete`; a step that fails has no outputs.
        workspace: Name of the PersistentVolumeClaim that was mounted at /workspace; empty if there is none.
        output_path: Folder with `report.json` and the samples of each task.
        passed: Whether all gates have passed.
        report: JSON object with `scores`, `champion_scores`, `differences` and `gates`.
    """
    given = locals()
    from trainjob_kfp import component_programs

    return component_programs.evaluate_model(**given)
