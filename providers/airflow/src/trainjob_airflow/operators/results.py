"""Result of a task after success: its XCom, and the extra of its asset events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.lifecycle import JobReference
    from trainjob.status import Outcome


def build_task_result(outcome: Outcome, reference: JobReference, extra_values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the XCom of a step as JSON values.

    Args:
        outcome: outcome of the TrainJob.
        reference: reference to the TrainJob.
        extra_values: values that this kind of step adds.
    """
    values = outcome.to_dict()
    common_values = {name: values[name] for name in ("job", "namespace", "uid", "phase", "progress", "usage")}
    return {**common_values, "attempt": reference.attempt, "seconds": outcome.seconds, **extra_values}


def add_asset_event_extra(
    context: Context, outlets: Sequence[Any], outcome: Outcome, reference: JobReference, extra_values: Mapping[str, Any]
) -> None:
    """Add the TrainJob's identity, metrics and results to the asset events of the outlets."""
    values = outcome.to_dict()
    extra = {
        "trainjob": str(reference),
        "uid": reference.uid,
        "attempt": reference.attempt,
        "metrics": values["progress"] or {},
        "seconds": outcome.seconds,
        "usage": values["usage"],
        **extra_values,
    }
    for outlet in outlets:
        if isinstance(outlet, Asset):
            context["outlet_events"][outlet].extra.update(extra)
