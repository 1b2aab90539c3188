"""Read-only server side of the page, mounted into Airflow's API server.

Every response has only data that its user may read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.staticfiles import StaticFiles

from trainjob.errors import TrainJobError
from trainjob_airflow.plugins.access import LOGS, TASKS, XCOMS, CurrentUser, filter_readable_dags, read_progress_xcoms
from trainjob_airflow.plugins.job_sources import describe_problem, list_job_sources
from trainjob_airflow.plugins.log_tails import LogTails
from trainjob_airflow.plugins.queries import JobDetails, details_query, list_query
from trainjob_airflow.plugins.rows import get_instance_key
from trainjob_airflow.version_compat import redact

_ASSETS = Path(__file__).parent / "assets"
_HEADERS = {
    # Data from the cluster never runs as code: only the page's own scripts run, and nothing is loaded from elsewhere.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_MAX_ROWS = 200
_MAX_AGE_AFTER_END = timedelta(days=1)
_LOG_TAILS = LogTails()
_NOT_FOUND_MESSAGE = "This TrainJob does not exist, or you may not read its DAG."


def make_app() -> FastAPI:
    """Return the app that serves the page's files and its JSON API."""
    app = FastAPI(title="TrainJobs", docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_add_headers)
    # Plain functions: FastAPI runs them on threads, because they query the database and the cluster.
    app.get("/api/trainjobs")(list_trainjobs)
    app.get("/api/trainjobs/{connection}/{namespace}/{name}")(show_trainjob)
    app.get("/api/trainjobs/{connection}/{namespace}/{name}/log")(show_log)
    app.mount("/", StaticFiles(directory=_ASSETS, html=True))
    return app


async def _add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    response.headers.update(_HEADERS)
    return response


def list_trainjobs(
    user: CurrentUser,
    dag: str = "",
    run: str = "",
    task: str = "",
    index: Annotated[int | None, Query(description="map index")] = None,
) -> dict[str, Any]:
    """Return the active TrainJobs, and those that ended within a day, of the user's DAGs.

    Only DAGs that the user may read are included. Active TrainJobs come first, and the newest of each group first. The
    arguments filter the rows. With `run`, TrainJobs that ended earlier are included, too.
    """
    filters = {"dag": dag, "run": run, "task": task, "index": index}
    filters = {name: value for name, value in filters.items() if value not in ("", None)}
    found: list[dict[str, Any]] = []
    problems: list[str] = []
    for source in list_job_sources():
        try:
            found += list_query(source).get().values()
        except Exception as error:  # noqa: BLE001 - an error of one cluster must not hide the others
            problems.append(describe_problem(source, error))
    rows = [row for row in found if all(row[name] == value for name, value in filters.items())]
    if "run" not in filters:
        rows = [row for row in rows if not _ended_long_ago(row)]
    allowed = filter_readable_dags(user, {row["dag"] for row in rows}, TASKS)
    rows = [row for row in rows if row["dag"] in allowed]
    rows.sort(key=lambda row: row["created"], reverse=True)
    rows.sort(key=lambda row: row["finished"])
    shown = [_without_metrics(row) for row in _add_progress(user, rows[:_MAX_ROWS])]
    return {"trainjobs": shown, "total": len(rows), "problems": problems}


def show_trainjob(user: CurrentUser, connection: str, namespace: str, name: str) -> dict[str, Any]:
    """Return one TrainJob: its row, conditions, ranks and newest events."""
    details, problem = _get_details(user, connection, namespace, name)
    if details is None:
        return {"problem": problem}
    [row] = _add_progress(user, [details.row])
    parts = {"conditions": details.conditions, "ranks": details.ranks, "events": details.events}
    return {"problem": "", "trainjob": row, "pods": len(details.pods), **parts}


def show_log(user: CurrentUser, connection: str, namespace: str, name: str) -> dict[str, Any]:
    """Return the last log lines, the progress and the curve of a TrainJob.

    The curve is that of the loss or the reward. The user must be allowed to read the log of its task.
    """
    details, problem = _get_details(user, connection, namespace, name)
    if details is None:
        return {"problem": problem}
    dag = details.row["dag"]
    if not filter_readable_dags(user, [dag], LOGS):
        return {"problem": f"You may not read the logs of the DAG {dag}."}
    log = _LOG_TAILS.get(details.row["uid"], details.cluster, namespace).snapshot(details.pods)
    # Values that Airflow knows as secrets are shown as ***, as in a task's log.
    return {"problem": "", **log, "lines": [redact(line) for line in log["lines"]]}


def _get_details(user: Any, connection: str, namespace: str, name: str) -> tuple[JobDetails | None, str]:
    """Return the TrainJob, or the reason why it cannot be shown.

    Raises:
        HTTPException: the TrainJob does not exist or the user may not see it. Both have the same response, 404.
    """
    for source in list_job_sources():
        if source.connection != connection:
            continue
        try:
            row = list_query(source).get().get(name)
            if row is None or row["namespace"] != namespace:
                continue
            if not filter_readable_dags(user, [row["dag"]], TASKS):
                break
            details = details_query(source, name).get()
        except TrainJobError as error:
            return None, describe_problem(source, error)
        if details is None:
            return None, "The TrainJob was deleted."
        return replace(details, row={**details.row, "newest": row["newest"]}), ""
    raise HTTPException(404, _NOT_FOUND_MESSAGE)


def _add_progress(user: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the progress of their tasks.

    If a task has none, it is the progress that the trainer itself reports. Only the newest attempt of a task gets the
    task's progress, because it is that of the newest attempt.
    """
    allowed = filter_readable_dags(user, {row["dag"] for row in rows}, XCOMS)
    progress = read_progress_xcoms(get_instance_key(row) for row in rows if row["newest"] and row["dag"] in allowed)
    return [_with_progress(row, progress.get(get_instance_key(row), {}), row["dag"] in allowed) for row in rows]


def _with_progress(row: dict[str, Any], task_progress: dict[str, Any], is_allowed: bool) -> dict[str, Any]:
    """Return a row with `progress`: that of the task, or of the trainer if it has no step."""
    shown = {name: value for name, value in row.items() if name != "trainer_status"}
    known = task_progress if row["newest"] else {}
    if is_allowed and not known.get("step"):
        known = {**known, **row["trainer_status"]}
    return {**shown, "progress": known or None, "usage": _choose_usage(row["usage"], known.get("usage"))}


def _choose_usage(current: dict[str, Any] | None, recorded: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the usage of the pods that exist, unless the task has recorded a larger one.

    The pods of a TrainJob that has ended may have been deleted.
    """
    known = [usage for usage in (current, recorded) if usage]
    return max(known, key=lambda usage: (usage["complete"], usage["pod_seconds"]), default=None)


def _without_metrics(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for the list, which shows only the reward among the metrics."""
    progress = row["progress"]
    if not progress or "metrics" not in progress:
        return row
    reward = {"reward": progress["metrics"]["reward"]} if "reward" in progress["metrics"] else {}
    return {**row, "progress": {**progress, "metrics": reward}}


def _ended_long_ago(row: dict[str, Any]) -> bool:
    if not row["ended"]:
        return False
    return datetime.fromisoformat(row["ended"].replace("Z", "+00:00")) < datetime.now(timezone.utc) - _MAX_AGE_AFTER_END
