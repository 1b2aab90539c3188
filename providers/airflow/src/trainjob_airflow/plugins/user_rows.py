"""Rows of the TrainJobs of a user: from all job sources, with the progress of their tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from trainjob_airflow.plugins.access import TASKS, XCOMS, filter_readable_dags, filter_rows_of_team, list_usable_sources
from trainjob_airflow.plugins.history import MAX_ENDED, HistoryScope, list_dags_with_progress, read_ended_rows
from trainjob_airflow.plugins.job_list import format_time
from trainjob_airflow.plugins.job_sources import AWAY_ERRORS, JobSource, describe_problem
from trainjob_airflow.plugins.queries import list_query
from trainjob_airflow.plugins.rows import get_instance_key
from trainjob_airflow.plugins.shared_query import MAX_AGE_SECONDS, QueryRunning
from trainjob_airflow.plugins.task_records import TaskXComs, read_xcoms
from trainjob_airflow.task_progress import PROGRESS_KEY
from trainjob_airflow.version_compat import redact


@dataclass(frozen=True)
class FoundRows:
    """Rows of the job sources.

    Attributes:
        rows: rows of all TrainJobs of this Airflow. The user's permissions are not checked yet. `last_seen` is the time
            of the last response of a cluster that does not respond; otherwise, it is empty.
        problems: sentences about failed queries.
        loading: job sources whose first query has not ended.
    """

    rows: list[dict[str, Any]]
    problems: list[str]
    loading: list[str]


def find_rows(user: Any) -> FoundRows:
    """Return the rows of all job sources that may have TrainJobs of the user's teams."""
    found = FoundRows([], [], [])
    for source in list_usable_sources(user):
        try:
            shown = list_query(source).get()
        except QueryRunning:
            found.loading.append(str(source))
            continue
        except Exception as error:  # noqa: BLE001 - an error of one cluster must not hide the others
            found.problems.append(describe_problem(source, error))
            rows = read_last_rows(source, has_failed=True) if isinstance(error, AWAY_ERRORS) else {}
        else:
            found.problems.extend([shown.problem] if shown.problem else [])
            rows = read_last_rows(source)
        found.rows.extend(filter_rows_of_team(rows.values(), source.team))
    return found


def find_deleted_rows(user: Any, found: FoundRows, scope: HistoryScope) -> list[dict[str, Any]]:
    """Return rows of TrainJobs that tasks have recorded and that no cluster has.

    The user must be allowed to read the task instances and the XComs of their DAGs. `deleted` of a row is False if it
    may exist in a cluster that has not responded. A problem is added if there are too many rows.
    """
    dags = {scope.dag} if scope.dag else list_dags_with_progress(scope.since)
    readable = filter_readable_dags(user, dags, TASKS) & filter_readable_dags(user, dags, XCOMS)
    rows = read_ended_rows(readable, scope) if readable else []
    if len(rows) == MAX_ENDED:
        found.problems.append(f"Only the newest {MAX_ENDED:,} tasks that ended are listed. Select a DAG or a time.")
    existing, is_deleted = {get_instance_key(row) for row in found.rows}, not (found.problems or found.loading)
    return [{**row, "deleted": is_deleted} for row in rows if get_instance_key(row) not in existing]


def read_last_rows(source: JobSource, *, has_failed: bool = False) -> dict[str, dict[str, Any]]:
    """Return the newest known rows of a job source by name; empty if none are known.

    Args:
        source: the job source. A list of its TrainJobs is kept until a newer one replaces it.
        has_failed: whether the newest query has failed. The rows then have `last_seen`, as do rows older than 30 s.
    """
    last = list_query(source).last_result
    if last is None:
        return {}
    shown, age = last
    is_outdated = has_failed or age > MAX_AGE_SECONDS
    seen_at = format_time(datetime.now(timezone.utc) - timedelta(seconds=age)) if is_outdated else ""
    return {name: {**row, "last_seen": seen_at} for name, row in shown.rows.items()}


def add_progress(user: Any, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the progress of their tasks.

    If a task has none, it is the progress that the trainer itself reports. Only the newest attempt of a task gets the
    task's progress, because it is that of the newest attempt.
    """
    rows = list(rows)
    allowed = filter_readable_dags(user, {row["dag"] for row in rows}, XCOMS)
    instances = [get_instance_key(row) for row in rows if row["newest"] and row["dag"] in allowed]
    found, nothing = read_xcoms(instances, [PROGRESS_KEY]), TaskXComs()
    return [_with_progress(row, found.get(get_instance_key(row), nothing), row["dag"] in allowed) for row in rows]


def _with_progress(row: dict[str, Any], xcoms: TaskXComs, is_allowed: bool) -> dict[str, Any]:
    """Return a row with `progress`: that of the task, or of the trainer if it has no step.

    `not_shown` is the reason why the task's progress is not shown; otherwise, it is empty.
    """
    shown = {name: value for name, value in row.items() if name != "trainer_status"}
    known = xcoms.progress if row["newest"] else {}
    problem = xcoms.unreadable.get(PROGRESS_KEY, "") if row["newest"] else ""
    if is_allowed and not known.get("step"):
        known = {**known, **row["trainer_status"]}
    not_shown = redact(f"progress: {problem}") if problem else ""
    return {
        **shown,
        "progress": known or None,
        "not_shown": not_shown,
        "usage": _choose_usage(row["usage"], known.get("usage")),
    }


def _choose_usage(current: dict[str, Any] | None, recorded: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the usage of the pods that exist, unless the task has recorded a larger one.

    The pods of a TrainJob that has ended may have been deleted.
    """
    known = [usage for usage in (current, recorded) if usage]
    return max(known, key=lambda usage: (usage["complete"], usage["pod_seconds"]), default=None)
