"""Programs of the components: what each does in its launcher's pod.

A component's own source is its signature and a call of its program here, because Argo stores this source about ten
times in each Workflow. Each program gets the arguments of its component by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trainjob.errors import InvalidSpec
from trainjob.status import Outcome
from trainjob_kfp import artifact_store, dataset_artifact, model_location, outputs, steps
from trainjob_kfp.input_names import add_problems, name_inputs
from trainjob_kfp.launcher import LAUNCH_ARGUMENTS, ExitOnError, launch, list_launch_problems
from trainjob_kfp.model_location import Artifact
from trainjob_kfp.outputs import LogSummary, Metrics, Outputs


class _Page(Protocol):
    path: str


def initialize_dataset(dataset: dataset_artifact.Artifact | None, **arguments: Any) -> tuple[Any, ...]:
    """Fetch a dataset, and return the outputs."""
    with ExitOnError():
        arguments |= dataset_artifact.find_source(dataset, arguments)
        step, outcome = _run(steps.initialize_dataset, arguments)
        return (*outputs.build_outputs(outcome, "/workspace/dataset", step.workspace), step.eval_dataset_path)


def initialize_model(**arguments: Any) -> Outputs:
    """Fetch a model, and return the outputs."""
    with ExitOnError():
        step, outcome = _run(steps.initialize_model, arguments)
        return outputs.build_outputs(outcome, "/workspace/model", step.workspace)


def fine_tune(metrics: Metrics, loss_curve: _Page, after_jobs: Sequence[str], **arguments: Any) -> tuple[Any, ...]:  # noqa: ARG001 - `after_jobs` is for KFP's cache
    """Fine-tune a model, write metrics and loss curve, and return the outputs."""
    with ExitOnError():
        log_summary = LogSummary()
        step, outcome = _run(steps.fine_tune, arguments, log_summary)
        outputs.log_training_metrics(outcome, log_summary, metrics)
        outputs.write_loss_curve(outcome, log_summary, loss_curve.path)
        output_folder = f"{steps.OUTPUT_FOLDER}/{step.output_path}".rstrip("/") if step.workspace else ""
        return (*outputs.build_outputs(outcome, output_folder, step.workspace), log_summary.tracking_url)


def export_model(model: Artifact, **arguments: Any) -> Outputs:
    """Export a model, describe it in the artifact, and return the outputs."""
    with ExitOnError():
        log_summary = LogSummary()
        if not arguments["destination"]:
            arguments |= artifact_store.find_store(model.uri, arguments)
        place = model_location.choose_destination(model.uri, arguments["destination"], arguments["endpoint"])
        step, outcome = _run(steps.export_model, {**arguments, "destination": place}, log_summary)
        model_location.update_artifact(model, outcome, place, log_summary.step_result)
        return outputs.build_outputs(outcome, place, step.workspace)


def train(metrics: Metrics, after_jobs: Sequence[str], **arguments: Any) -> tuple[Any, ...]:  # noqa: ARG001 - `after_jobs` is for KFP's cache
    """Run a training, write its metrics, and return the outputs."""
    with ExitOnError():
        log_summary = LogSummary()
        step, outcome = _run(steps.train, arguments, log_summary)
        outputs.log_training_metrics(outcome, log_summary, metrics)
        workspace = getattr(step, "workspace", None)
        common = outputs.build_outputs(outcome, "/workspace" if workspace else "", workspace)
        return (*common, log_summary.result_json, log_summary.tracking_url)


def evaluate(metrics: Metrics, metric: str, minimum: float, **arguments: Any) -> tuple[Any, ...]:
    """Run an evaluation, write its scores, and return the outputs."""
    with ExitOnError():
        log_summary = LogSummary()
        step, outcome = _run(steps.evaluate, arguments, log_summary)
        score, passed = outputs.log_scores(log_summary, metric, minimum, metrics)
        common = outputs.build_outputs(outcome, "/workspace" if step.workspace else "", step.workspace)
        return (*common, score, passed)


def evaluate_model(metrics: Metrics, summary: _Page, **arguments: Any) -> tuple[Any, ...]:
    """Score a model, write its scores and their summary, and return the outputs."""
    with ExitOnError():
        log_summary = LogSummary()
        step, outcome = _run(steps.evaluate_model, arguments, log_summary)
        passed, report = outputs.log_evaluation(log_summary, metrics, summary.path)
        return (*outputs.build_outputs(outcome, f"/workspace/{step.output_path}", step.workspace), passed, report)


def generate(metrics: Metrics, **arguments: Any) -> tuple[Any, ...]:
    """Generate answers, write their numbers, and return the outputs."""
    with ExitOnError():
        log_summary = LogSummary()
        step, outcome = _run(steps.generate, arguments, log_summary)
        rows = outputs.log_generation(log_summary, metrics)
        return (*outputs.build_outputs(outcome, f"/workspace/{step.output_path}", step.workspace), rows)


def promote_model(**arguments: Any) -> tuple[Any, ...]:
    """Make a model the served one, and return the outputs."""
    return _change_served_model(steps.promote_model, arguments, "promoted")


def rollback_model(**arguments: Any) -> tuple[Any, ...]:
    """Undo a promotion, and return the outputs."""
    return _change_served_model(steps.rollback_model, arguments, "rolled_back")


def _change_served_model(build_step: Callable[..., Any], arguments: dict[str, Any], changed: str) -> tuple[Any, ...]:
    with ExitOnError():
        log_summary = LogSummary()
        step, outcome = _run(build_step, arguments, log_summary)
        common = outputs.build_outputs(outcome, "/workspace" if step.workspace else "", step.workspace)
        return (*common, *outputs.read_served_models(log_summary, changed))


def _run(
    build_step: Callable[..., Any], arguments: dict[str, Any], log_summary: LogSummary | None = None
) -> tuple[Any, Outcome]:
    """Run the TrainJob of a component to its end, and return its step and outcome."""
    log_summary = log_summary or LogSummary()
    for_launcher = {name: arguments.pop(name) for name in LAUNCH_ARGUMENTS}
    task_config = arguments.pop("task_config")
    try:
        with add_problems(list_launch_problems(for_launcher)):
            step = build_step(arguments, task_config)
        outcome = launch(
            step,
            **for_launcher,
            on_attempt=log_summary.start_attempt,
            on_progress=log_summary.points.append,
            on_line=log_summary.read_line,
        )
    except InvalidSpec as error:
        raise name_inputs(error, arguments) from None
    return step, outcome
