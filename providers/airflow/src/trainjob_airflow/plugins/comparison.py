"""Comparison of the TrainJobs of a sweep: parameters against metrics.

The functions do no I/O. Parameters come from the rendered template fields of the task instances, metrics from their
XComs and from the TrainJobs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainjob.status import Phase

RENDERED_TRAINJOB = "rendered_trainjob"
"""Template field of the operators with the TrainJob as it was sent. It is no parameter."""
_LOWER_IS_BETTER = ("loss", "perplexity", "error", "mse", "rmse", "mae", "wer")
_HIGHER_IS_BETTER = ("accuracy", "accuracies", "reward", "rewards", "margins", "score", "f1", "auc")
_NO_DIRECTION = ("std", "rejected")  # `reward_std` and `rewards/rejected` of TRL
_MAX_TEXT_LENGTH = 300
_SUCCEEDED = (Phase.COMPLETE.value, "success")  # of the TrainJob, or of a task instance whose TrainJob is not known


@dataclass(frozen=True)
class Trial:
    """One task instance of a sweep, and its newest TrainJob.

    Attributes:
        task: task ID.
        index: map index; -1 for a plain task.
        operator: name of the operator, such as `FineTuneOperator`.
        phase: phase of the TrainJob, or the state of the task instance if the TrainJob is not known.
        job: `connection`, `namespace` and `name` of the TrainJob if it exists; otherwise empty.
        fields: rendered template fields of the task instance.
        metrics: numbers by name.
    """

    task: str
    index: int
    operator: str
    phase: str
    job: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


def compare(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """Return one table for each operator that has several trials, as JSON values.

    A table has `operator`, `parameters` (names of the values that differ), `metrics` (each with `name` and `better`:
    `lower`, `higher` or empty if that is not known), and `rows`. A row has `best`, the names of the metrics whose best
    value it has. With equal values, several rows have it. Only trials that succeeded are considered: a training that
    failed or runs has values, but no model.
    """
    by_operator: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: (trial.operator, trial.task, trial.index)):
        by_operator.setdefault(trial.operator, []).append(trial)
    return [_compare_group(operator, group) for operator, group in by_operator.items() if len(group) > 1]


def _compare_group(operator: str, trials: Sequence[Trial]) -> dict[str, Any]:
    values = [flatten_fields(trial.fields) for trial in trials]
    names = dict.fromkeys(name for each in values for name in each)
    differing = [name for name in names if len({each.get(name) for each in values}) > 1]
    metrics = _sort_metrics({name for trial in trials for name in trial.metrics})
    succeeded = [trial for trial in trials if trial.phase in _SUCCEEDED]
    best = {name: _find_best(name, [trial.metrics.get(name) for trial in succeeded]) for name in metrics}
    return {
        "operator": operator,
        "parameters": differing,
        "metrics": [{"name": name, "better": get_better_direction(name)} for name in metrics],
        "rows": [
            {
                "task": trial.task,
                "index": trial.index,
                "phase": trial.phase,
                "job": dict(trial.job) or None,
                "parameters": {name: each[name] for name in differing if name in each},
                "metrics": dict(trial.metrics),
                "best": [
                    name
                    for name in (metrics if trial in succeeded else ())
                    if best[name] is not None and trial.metrics.get(name) == best[name]
                ],
            }
            for trial, each in zip(trials, values, strict=True)
        ],
    }


def flatten_fields(fields: Mapping[str, Any]) -> dict[str, str]:
    """Return the rendered fields as texts, with a dotted name for each value in a dict.

    Long texts are cut to 300 characters.
    """
    flat: dict[str, str] = {}
    for name, value in fields.items():
        if name == RENDERED_TRAINJOB or value is None:
            continue
        if isinstance(value, Mapping):
            flat |= {f"{name}.{inner}": text for inner, text in flatten_fields(value).items()}
        else:
            flat[name] = (value if isinstance(value, str) else json.dumps(value))[:_MAX_TEXT_LENGTH]
    return flat


def collect_metrics(progress: Mapping[str, Any], task_result: Mapping[str, Any]) -> dict[str, float]:
    """Return loss, metrics, and the numbers that the training's code returned.

    Values that JSON cannot express, such as the loss of a training that diverged, are left out.

    Args:
        progress: the XCom `progress` of its task, or the progress that the trainer reports.
        task_result: the XCom of the task's result; empty before its end.
    """
    returned = task_result.get("result")
    sources = ({"loss": progress.get("loss")}, progress.get("metrics"), returned)
    return {
        str(name): float(value)
        for source in sources
        if isinstance(source, Mapping)
        for name, value in source.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def get_better_direction(metric: str) -> str:
    """Return `lower` or `higher`, whichever values of a metric are better.

    It is empty if the metric's name does not show it.
    """
    words = metric.lower().replace("/", "_").replace("-", "_").split("_")
    if any(word in _NO_DIRECTION for word in words):
        return ""
    if any(word in _LOWER_IS_BETTER for word in words):
        return "lower"
    return "higher" if any(word in _HIGHER_IS_BETTER for word in words) else ""


def _find_best(metric: str, values: Iterable[float | None]) -> float | None:
    """Return the best value of a metric; None if it is not known, or if all values are equal."""
    known = [value for value in values if value is not None]
    direction = get_better_direction(metric)
    if not direction or len(set(known)) < 2:
        return None
    return min(known) if direction == "lower" else max(known)


def _sort_metrics(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (name != "loss", not get_better_direction(name), name))
