"""Progress that a trainer reports in the TrainJob's status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trainjob.status.nested_fields import get_list, get_mapping, get_str
from trainjob.status.progress import Progress, parse_finite, round_up_epoch, update_metrics

_MAX_COUNT = 10.0**15  # a larger number of steps or epochs is not valid


def read_trainer_status(job: Mapping[str, Any]) -> Progress | None:
    """Return the progress in `status.trainerStatus` of a TrainJob.

    It is None if the status has neither a percentage, a remaining time, steps nor metrics.

    Trainer 2.2 and later have this status with the feature gate TrainJobStatus. `update_trainjob_status` of the
    Kubeflow SDK (0.5) reports a percentage, a remaining time and metrics of any name. transformers' KubeflowCallback
    (5.23) reports `current_step`, `total_steps`, `current_epoch` and the values of its log; after the training, only
    these values.
    """
    status = get_mapping(job, "status", "trainerStatus")
    percent, remaining = (_find_number(status, name) for name in ("progressPercentage", "estimatedRemainingSeconds"))
    metrics = update_metrics({}, dict(_reported_metrics(job)))
    step, total = _take_count(metrics, "current_step", "step"), _take_count(metrics, "total_steps", "max_steps")
    epoch, epochs = _take(metrics, "current_epoch", "epoch"), _take_count(metrics, "num_train_epochs")
    loss = metrics.pop("loss", None)
    if step is None and loss is None and not metrics and percent is None and remaining is None:
        return None
    is_at_step = step is not None
    return Progress(
        step=step or 0,
        total=total or None,
        epoch=None if epoch is None or not 0 <= epoch <= _MAX_COUNT else round_up_epoch(epoch, epochs),
        epochs=epochs or None,
        loss=loss,
        metrics=metrics,
        reported_percent=percent,
        remaining=remaining,
        reported_at=get_str(status, "lastUpdatedTime"),
        carried=frozenset() if is_at_step else frozenset(("loss", *metrics)),
    )


def _find_number(status: Mapping[str, Any], name: str) -> float | None:
    value = status.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT
    return value if is_number else None


def _reported_metrics(job: Mapping[str, Any]) -> Iterable[tuple[str, float | None]]:
    for metric in get_list(job, "status", "trainerStatus", "metrics"):
        if name := get_str(metric, "name"):
            yield name, parse_finite(get_str(metric, "value"))


def _take(metrics: dict[str, float], *names: str) -> float | None:
    """Remove metrics, and return the value of the first of the names that is present."""
    values = [metrics.pop(name) for name in names if name in metrics]
    return values[0] if values else None


def _take_count(metrics: dict[str, float], *names: str) -> int | None:
    value = _take(metrics, *names)
    return int(value) if value is not None and 0 <= value <= _MAX_COUNT else None
