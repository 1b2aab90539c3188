"""Output parameters and artifacts of the components, and the data for them from the log."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from trainjob.client import LogLine
from trainjob.errors import InvalidSpec, Problem, TrainJobError
from trainjob.spec import WorkspaceVolume
from trainjob.status import Outcome, parse_step_result, parse_tracking_url, summarize_evaluation
from trainjob_kfp.loss_curve import Curves, render_loss_curve
from trainjob_kfp.standard_output import print_line

_MAX_METRIC_NAME_LENGTH = 64
_NO_METRIC_CHARACTER = re.compile(r"[^A-Za-z0-9_-]+")


class Outputs(NamedTuple):
    """Output parameters of every component that runs a TrainJob.

    The components' return annotations name the same fields.

    Attributes:
        job: name of the TrainJob.
        namespace: namespace of the TrainJob.
        uid: uid of the TrainJob.
        status: `Complete`.
        workspace: name of the claim that was mounted at `/workspace`; empty if none was.
        output_path: location of the step's result: a folder of the workspace, or a URI.
    """

    job: str
    namespace: str
    uid: str
    status: str
    workspace: str
    output_path: str


class Metrics(Protocol):
    """The part of a `kfp.dsl.Metrics` artifact that is used here."""

    def log_metric(self, metric: str, value: float) -> None:
        """Record one value."""


class LogSummary:
    """Progress and result that were read from a TrainJob's log.

    It is filled while `launch` follows the log.

    Attributes:
        points: loss and other curves of the training; `points.append` adds a progress.
        step_result: receipt of an export, or `{"result": value}` with the value that a function returned; empty if the
            log has neither.
        tracking_url: address of the tracked run, which all attempts share; empty without one.
        attempt: number of the attempt whose log is read, from 1.
    """

    def __init__(self) -> None:
        """Create an empty record."""
        self.points = Curves()
        self.step_result: dict[str, Any] = {}
        self.tracking_url = ""
        self.attempt = 1

    def start_attempt(self, attempt: int) -> None:
        """Record that the log of this attempt follows, without the result of an earlier one."""
        self.step_result = {}
        self.attempt = attempt

    def read_line(self, line: LogLine) -> None:
        """Read one line of the log, and keep the result or the tracked run's address in it."""
        if step_result := parse_step_result(line.text):
            self.step_result = step_result
            if error := step_result.get("result_error"):
                print_line(f"warning: {error}")
        self.tracking_url = parse_tracking_url(line.text) or self.tracking_url

    @property
    def result_json(self) -> str:
        """Value that the training's function returned, as JSON; empty if the log has no value."""
        return json.dumps(self.step_result["result"]) if "result" in self.step_result else ""


def build_outputs(outcome: Outcome, output_path: str = "", workspace: WorkspaceVolume | None = None) -> Outputs:
    """Return the output parameters of a component."""
    claim = workspace.claim if workspace else ""
    return Outputs(outcome.job, outcome.namespace, outcome.uid, outcome.phase.value, claim, output_path)


def log_training_metrics(outcome: Outcome, log_summary: LogSummary, metrics: Metrics) -> None:
    """Record steps, epochs, losses, duration, usage, attempts and other metrics of a training.

    The losses are the first and the last one. The duration is in seconds and covers the whole last TrainJob. So do
    `gpu_seconds` and `pod_seconds`, see `trainjob.status.Usage`. `attempts`
    is 1 more than the number of TrainJobs that failed before, in the same try of the step. Values that are
    not known are left out. The names of the trainer's metrics have `_` in place of other characters than letters,
    digits, `_` and `-`: `rewards/chosen` becomes `rewards_chosen`.
    """
    last = outcome.progress
    known = {
        **(_by_metric_name(last.metrics) if last else {}),
        "loss": last.loss if last else None,
        "first_loss": next(iter(log_summary.points.values("loss").values()), None),
        "steps": last.step or None if last else None,
        "epochs": last.epoch if last else None,
        "seconds": outcome.seconds,
        "gpu_seconds": outcome.gpu_seconds,
        "pod_seconds": outcome.pod_seconds,
        "attempts": log_summary.attempt,
    }
    for name, value in known.items():
        if value is not None:
            metrics.log_metric(name, float(value))


def write_loss_curve(outcome: Outcome, log_summary: LogSummary, path: str) -> None:
    """Write the page with the curve of the loss or the reward to a file.

    It has a link to the tracked run if there is one.

    If the log has no progress, the page has a note about it. The pods may have been deleted, and the log with them, or
    the image writes no progress.
    """
    curves = log_summary.points
    is_empty = not curves.count and outcome.progress is None
    note = "The log has no progress: its pods were deleted, or the image writes no progress bar." if is_empty else ""
    title = f"Training {curves.name} of {outcome.job}"
    page = render_loss_curve(curves, title, note, log_summary.tracking_url)
    Path(path).write_text(page, encoding="utf-8")


def _by_metric_name(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics by names without special characters."""
    return {_NO_METRIC_CHARACTER.sub("_", name)[:_MAX_METRIC_NAME_LENGTH]: value for name, value in metrics.items()}


def log_scores(log_summary: LogSummary, metric: str, minimum: float, metrics: Metrics) -> tuple[float, bool]:
    """Record the numbers that an evaluation returned, and check one of them.

    Args:
        log_summary: record of the evaluation's log.
        metric: name of the number to check.
        minimum: smallest value that is good enough.
        metrics: artifact that receives all numbers, and the number of `attempts`.

    Returns:
        The number, and whether it is at least the minimum.

    Raises:
        InvalidSpec: the function did not return a dict with numbers, or the dict does not have this number.
    """
    returned = log_summary.step_result.get("result")
    by_name = returned if isinstance(returned, Mapping) else {}
    scores = {name: value for name, value in by_name.items() if _is_number(value)}
    if metric not in scores:
        names = ", ".join(sorted(scores)) or "no named numbers"
        found = (
            f"it returned {names}"
            if "result" in log_summary.step_result
            else log_summary.step_result.get("result_error", "the available part of its log has no result")
        )
        rule = f"the function must return it as JSON, such as {{{metric!r}: 0.98}}; {found}"
        raise InvalidSpec(Problem("metric", repr(metric), rule))
    metrics.log_metric("attempts", float(log_summary.attempt))
    for name, value in scores.items():
        metrics.log_metric(name, float(value))
    return float(scores[metric]), scores[metric] >= minimum


def log_evaluation(log_summary: LogSummary, metrics: Metrics, path: str) -> tuple[bool, str]:
    """Record the scores of a model and of its champion, and the differences of the two.

    A page with them and the gates is written to the file `path`.

    The names are those of [log_training_metrics][], such as `tickets_exact_match`, `champion_tickets_exact_match` and
    `difference_tickets_exact_match`.

    Returns:
        Whether all gates have passed, and the report as JSON.

    Raises:
        TrainJobError: the log has no result, so nothing shows that the gates have passed.
    """
    report = log_summary.step_result
    if "passed" not in report:
        hint = "the result is in report.json in the folder output_path of the workspace"
        raise TrainJobError("the available part of the evaluation's log has no result", hint=hint)
    found = {
        f"{prefix}{name}": score["value"]
        for prefix, key in (("", "scores"), ("champion_", "champion_scores"), ("difference_", "differences"))
        for name, score in report[key].items()
        if score["value"] is not None
    }
    for name, value in _by_metric_name({"attempts": log_summary.attempt, **found}).items():
        metrics.log_metric(name, float(value))
    Path(path).write_text(summarize_evaluation(report), encoding="utf-8")
    return bool(report["passed"]), json.dumps(report)


def log_generation(log_summary: LogSummary, metrics: Metrics) -> int:
    """Record rows, shards, tokens and speed of a generation, and return the number of rows.

    Raises:
        TrainJobError: the log has no result, so nothing shows that all rows have an answer.
    """
    result = log_summary.step_result
    if "rows" not in result:
        hint = "repeat the step: it generates only what is missing"
        raise TrainJobError("the available part of the generation's log has no result", hint=hint)
    for name, value in {"attempts": log_summary.attempt, **result}.items():
        if _is_number(value):
            metrics.log_metric(name, float(value))
    return int(result["rows"])


def read_served_models(log_summary: LogSummary, changed: str) -> tuple[bool, str, str]:
    """Return whether a step has changed which model is served, this model, and the one before.

    Args:
        log_summary: summary of the log.
        changed: name of the result's value that says it.

    Raises:
        TrainJobError: the log has no result, so nothing shows which model is served.
    """
    result = log_summary.step_result
    if changed not in result:
        hint = "repeat the step: it changes nothing that it has changed already"
        raise TrainJobError("the available part of the step's log has no result", hint=hint)
    return bool(result[changed]), result["model"], result["before"]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
