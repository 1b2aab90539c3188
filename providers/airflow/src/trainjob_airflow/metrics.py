"""Metrics of TrainJobs, which Airflow sends to StatsD or OpenTelemetry with its own.

Airflow's settings `[metrics]` decide where the metrics go, and which of them (`metrics_allow_list`). Each metric has a
name with tags. For StatsD, which has no tags, it is also sent under a name that contains the values, such as
`trainjob.finished.<dag_id>.<task_id>.<category>`. Airflow does the same with its own metrics, and the setting
`legacy_names_on` of Airflow 3.2 switches the second names off.

No function of this module raises an error. Names and tags contain no names of TrainJobs and no run IDs, so the number
of time series is bounded by the number of tasks.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from trainjob_airflow.version_compat import conf, get_stats

if TYPE_CHECKING:
    from trainjob.client import SkippedLines
    from trainjob.lifecycle import JobReference
    from trainjob.status import Outcome

_LOGGER = logging.getLogger(__name__)
_INVALID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_NAME_LENGTH = 200  # Airflow refuses names of more than 250 characters, for OpenTelemetry including its prefix


class MetricKind(str, Enum):
    """Kind of a metric; the value is the method of Airflow's stats."""

    COUNTER = "incr"
    GAUGE = "gauge"
    TIMER = "timing"


@dataclass(frozen=True)
class Metric:
    """Definition of a metric.

    Attributes:
        name: name after Airflow's prefix, which is `airflow` by default.
        kind: kind of the metric.
        tags: names of its tags, in the order of the values in the name for StatsD.
    """

    name: str
    kind: MetricKind
    tags: tuple[str, ...]


_TASK = ("dag_id", "task_id")
_TRIGGERER = ("hostname",)

SUBMITTED = Metric("trainjob.submitted", MetricKind.COUNTER, _TASK)
ADOPTED = Metric("trainjob.adopted", MetricKind.COUNTER, _TASK)
RESUBMITTED = Metric("trainjob.resubmitted", MetricKind.COUNTER, _TASK)
FINISHED = Metric("trainjob.finished", MetricKind.COUNTER, (*_TASK, "category"))
ERRORS = Metric("trainjob.errors", MetricKind.COUNTER, (*_TASK, "error"))
QUEUED_DURATION = Metric("trainjob.queued_duration", MetricKind.TIMER, _TASK)
RUN_DURATION = Metric("trainjob.run_duration", MetricKind.TIMER, _TASK)
POD_SECONDS = Metric("trainjob.pod_seconds", MetricKind.COUNTER, _TASK)
GPU_SECONDS = Metric("trainjob.gpu_seconds", MetricKind.COUNTER, _TASK)
RESTARTS = Metric("trainjob.restarts", MetricKind.COUNTER, _TASK)
SKIPPED_LOG_LINES = Metric("trainjob.skipped_log_lines", MetricKind.COUNTER, _TASK)
JOBS = Metric("trainjob.jobs", MetricKind.GAUGE, (*_TRIGGERER, "phase"))
INFORMER_RELISTS = Metric("trainjob.informer_relists", MetricKind.COUNTER, (*_TRIGGERER, "resource"))
INFORMER_ERRORS = Metric("trainjob.informer_errors", MetricKind.COUNTER, (*_TRIGGERER, "resource"))
INFORMER_SYNC_AGE = Metric("trainjob.informer_sync_age", MetricKind.GAUGE, (*_TRIGGERER, "resource"))

METRICS = (
    SUBMITTED,
    ADOPTED,
    RESUBMITTED,
    FINISHED,
    ERRORS,
    QUEUED_DURATION,
    RUN_DURATION,
    POD_SECONDS,
    GPU_SECONDS,
    RESTARTS,
    SKIPPED_LOG_LINES,
    JOBS,
    INFORMER_RELISTS,
    INFORMER_ERRORS,
    INFORMER_SYNC_AGE,
)
"""All metrics of the provider."""


def report_submission(task_instance: Any, reference: JobReference, *, operator: str, has_ended: bool) -> None:
    """Count a TrainJob that a task has created or adopted.

    Airflow's metrics of resumable jobs count it, too.

    Args:
        task_instance: the task instance.
        reference: the TrainJob.
        operator: name of the operator's class.
        has_ended: whether the TrainJob has ended already.
    """
    tags = get_task_tags(task_instance)
    emit(ADOPTED if reference.adopted else SUBMITTED, 1, tags)
    if reference.adopted:
        counters = ["reconnect_attempt", "already_succeeded" if has_ended else "reconnect_success"]
    else:
        counters = ["fresh_submit"] if reference.attempt == 1 else ["reconnect_attempt", "terminal_resubmit"]
    team = {name: tags[name] for name in ("team_name",) if name in tags}
    for counter in counters:
        # Names and tags of Airflow 3.3, airflow.sdk.bases.resumablejobmixin; older versions have no such metrics.
        emit(Metric(f"resumable_job.{counter}", MetricKind.COUNTER, ()), 1, {"operator": operator, **team})


def report_resubmission(task_instance: Any) -> None:
    """Count another attempt of a try.

    It follows an interruption by the infrastructure, or the deletion of an adopted TrainJob.
    """
    emit(RESUBMITTED, 1, get_task_tags(task_instance))


def report_end(task_instance: Any, outcome: Outcome) -> None:
    """Send the metrics of an ended TrainJob: its category, durations, usage and restarts.

    A value that is not known is not sent, such as the end of a TrainJob that was deleted.
    """
    tags = get_task_tags(task_instance)
    emit(FINISHED, 1, {**tags, "category": outcome.category.value})
    for timer, duration in ((QUEUED_DURATION, outcome.queued_seconds), (RUN_DURATION, outcome.run_seconds)):
        if duration is not None:
            emit(timer, timedelta(seconds=max(0.0, duration)), tags)
    for counter, seconds in ((POD_SECONDS, outcome.pod_seconds), (GPU_SECONDS, outcome.gpu_seconds)):
        if seconds is not None:
            emit(counter, round(seconds), tags)
    emit(RESTARTS, outcome.restarts, tags)


@contextlib.contextmanager
def count_errors(task_instance: Any) -> Iterator[None]:
    """Count an error of this project that is raised inside, except the failure of a TrainJob.

    Args:
        task_instance: the task instance.

    Raises:
        Exception: the error.
    """
    from trainjob.errors import JobFailed, TrainJobError

    try:
        yield
    except TrainJobError as error:
        if not isinstance(error, JobFailed):  # `report_end` counts it
            report_error(task_instance, type(error).__name__)
        raise


def report_error(task_instance: Any, kind: str) -> None:
    """Count an error that ended the wait of a task or prevented it.

    Args:
        task_instance: the task instance.
        kind: name of the error's class.
    """
    emit(ERRORS, 1, {**get_task_tags(task_instance), "error": kind})


def report_skipped_lines(task_instance: Any, skipped: SkippedLines) -> None:
    """Count log lines that were skipped in the task's log.

    Args:
        task_instance: the task instance; None in a trigger under `dag.test()`.
        skipped: the gap in the log.
    """
    emit(SKIPPED_LOG_LINES, skipped.lines, get_task_tags(task_instance))


def get_task_tags(task_instance: Any) -> dict[str, str]:
    """Return the tags of Airflow's own metrics of a task instance; empty for None."""
    if task_instance is None:
        return {}
    tags = getattr(task_instance, "stats_tags", None)  # since Airflow 3.3; it adds the team
    return dict(tags) if tags else {"dag_id": task_instance.dag_id, "task_id": task_instance.task_id}


def emit(metric: Metric, value: float | timedelta, tags: Mapping[str, str]) -> None:
    """Send a value of a metric under all its names.

    Args:
        metric: the metric.
        value: value of a gauge, increment of a counter, or duration.
        tags: values of the tags. Tags that the metric does not name, such as Airflow's `team_name`, are sent, too.
    """
    try:
        stats = get_stats()
        for name, own_tags in build_names(metric, tags, with_values=_has_value_names()):
            getattr(stats, metric.kind.value)(name, value, tags=own_tags)
    except Exception:
        _LOGGER.debug("The metric %s could not be sent", metric.name, exc_info=True)


def _has_value_names() -> bool:
    return bool(conf.getboolean("metrics", "legacy_names_on", fallback=True))


def build_names(metric: Metric, tags: Mapping[str, str], *, with_values: bool) -> list[tuple[str, dict[str, str]]]:
    """Return the names under which a metric is sent, each with its tags.

    Args:
        metric: the metric.
        tags: values of the tags.
        with_values: whether to add the name that contains the values of the metric's tags. It is not added if a value
            is missing or the name is too long.
    """
    names = [(metric.name, dict(tags))]
    if with_values and metric.tags and all(tags.get(tag) for tag in metric.tags):
        name = ".".join([metric.name, *(_to_name_part(tags[tag]) for tag in metric.tags)])
        if len(name) <= _MAX_NAME_LENGTH:
            names.append((name, {tag: value for tag, value in tags.items() if tag not in metric.tags}))
    return names


def _to_name_part(value: str) -> str:
    """Return a value as one part of a name; Airflow 3.3 replaces dots in the same way."""
    return _INVALID_CHARACTERS.sub("_", value.replace(".", "__"))
