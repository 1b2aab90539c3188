"""Read-only server side of the page, mounted into Airflow's API server.

Every response has only data that its user may read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.staticfiles import StaticFiles

from trainjob.errors import TrainJobError
from trainjob.lifecycle import JobReference
from trainjob_airflow.links.trainjob import list_links, read_link_templates
from trainjob_airflow.plugins.access import (
    LOGS,
    TASKS,
    XCOMS,
    CurrentUser,
    filter_readable_dags,
    filter_rows_of_team,
    list_usable_sources,
)
from trainjob_airflow.plugins.comparison import RENDERED_TRAINJOB, Trial, collect_metrics, compare
from trainjob_airflow.plugins.history import HistoryScope
from trainjob_airflow.plugins.job_list import (
    PROGRESS_COLUMNS,
    SORT_PATTERN,
    FacetValues,
    ListFilters,
    cut_page,
    format_time,
    list_runs,
    select_rows,
    sort_rows,
    to_utc,
)
from trainjob_airflow.plugins.job_sources import AWAY_ERRORS, JobSource, describe_problem
from trainjob_airflow.plugins.log_tails import LogTails
from trainjob_airflow.plugins.queries import JobDetails, details_query, list_query
from trainjob_airflow.plugins.rows import get_instance_key
from trainjob_airflow.plugins.run_records import add_run_fields
from trainjob_airflow.plugins.shared_query import QueryRunning
from trainjob_airflow.plugins.task_records import (
    InstanceKey,
    InstanceRecord,
    TaskXComs,
    list_succeeded_instances,
    read_instance,
    read_instances_of_run,
    read_recorded_attempts,
    read_xcoms,
)
from trainjob_airflow.plugins.task_view import (
    find_tracked_run,
    merge_attempts,
    select_failure,
    select_score_curves,
    summarize,
)
from trainjob_airflow.plugins.user_rows import add_progress, find_deleted_rows, find_rows, read_last_rows
from trainjob_airflow.task_failure import FAILURE_KEY
from trainjob_airflow.task_progress import PROGRESS_KEY
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
_MAX_PAGE_ROWS = 200
_MAX_HIDDEN_LINES = 5
_MAX_SCORED_RUNS = 30
_MAX_AGE_OF_HISTORY = timedelta(days=30)
_MAX_AGE_AFTER_END = timedelta(days=1)
_LOG_TAILS = LogTails()
_NOT_FOUND_MESSAGE = "This TrainJob does not exist, or you may not read its DAG."
_NO_TASK_MESSAGE = "This task instance does not exist, or you may not read its DAG."
_RESULT_KEY = "return_value"


def make_app() -> FastAPI:
    """Return the app that serves the page's files and its JSON API."""
    app = FastAPI(title="TrainJobs", docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_add_headers)
    app.exception_handler(Exception)(_report_error)
    # Plain functions: FastAPI runs them on threads, because they query the database and the cluster.
    app.get("/api/trainjobs")(list_trainjobs)
    app.get("/api/trainjobs/{connection}/{namespace}/{name}")(show_trainjob)
    app.get("/api/trainjobs/{connection}/{namespace}/{name}/log")(show_log)
    app.get("/api/trainjobs/{connection}/{namespace}/{name}/log.txt")(download_log)
    app.get("/api/task")(show_task)
    app.get("/api/comparison")(show_comparison)
    app.mount("/", StaticFiles(directory=_ASSETS, html=True))
    return app


async def _add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    response.headers.update(_HEADERS)
    return response


async def _report_error(request: Request, error: Exception) -> Response:  # noqa: ARG001 - as Starlette calls it
    """Return the response to an unexpected error.

    Starlette sends it outside of the middleware, and raises the error again for the log.
    """
    text = "The page TrainJobs failed; the log of Airflow's API server has the error."
    return JSONResponse({"detail": text}, 500, headers=_HEADERS)


def list_trainjobs(
    user: CurrentUser,
    chosen: Annotated[FacetValues, Depends()],
    task: str = "",
    index: Annotated[int | None, Query(description="map index")] = None,
    text: Annotated[str, Query(description="words that must occur in a row")] = "",
    since: Annotated[datetime | None, Query(description="TrainJobs that had not ended before")] = None,
    until: Annotated[datetime | None, Query(description="TrainJobs that were created before")] = None,
    state: Annotated[str, Query(pattern="^(active|ended|deleted)?$", description="state of the TrainJobs")] = "",
    sort: Annotated[str, Query(pattern=SORT_PATTERN, description="column; with - in descending order")] = "",
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE_ROWS)] = 50,
) -> dict[str, Any]:
    """Return one page of the TrainJobs of the user's DAGs.

    Active TrainJobs are included, and those that ended within a day; with `run` or `since`, also those that ended
    earlier. The state `ended` selects those that ended within 30 days, also those that were deleted from the cluster,
    and `deleted` selects only the latter, which require the permission to read XComs. Without `sort`, active ones come
    first, and the newest of each group first. The counts include no TrainJob of a DAG that the user may not read.
    """
    found, now, has_ended = find_rows(user), datetime.now(timezone.utc), state in ("ended", "deleted")
    rows = [row for row in found.rows if state in ("", "active" if not row["finished"] else "ended")]
    oldest = since or (None if chosen.run else now - _MAX_AGE_AFTER_END)
    if has_ended:
        earliest = max(to_utc(since), now - _MAX_AGE_OF_HISTORY) if since else now - _MAX_AGE_OF_HISTORY
        oldest, scope = earliest, HistoryScope(earliest, until and to_utc(until), chosen.dag, chosen.run, task)
        rows += find_deleted_rows(user, found, scope)
    rows = [row for row in rows if task in ("", row["task"]) and index in (None, row["index"])]
    allowed = filter_readable_dags(user, {row["dag"] for row in rows}, TASKS)
    rows = add_run_fields(row for row in rows if row["dag"] in allowed)
    filters = ListFilters(asdict(chosen), text, format_time(oldest), format_time(until))
    selection = select_rows(rows, filters)
    by_progress = sort.removeprefix("-") in PROGRESS_COLUMNS
    ordered = sort_rows(add_progress(user, selection.rows) if by_progress else selection.rows, sort)
    first, page = cut_page(ordered, offset, limit)
    return {
        "trainjobs": [_without_metrics(row) for row in (page if by_progress else add_progress(user, page))],
        "total": len(ordered),
        "offset": first,
        "counts": {**selection.counts, "run": {}},
        "runs": list_runs(rows, chosen.dag, selection.counts["run"]) if chosen.dag else [],
        "problems": found.problems,
        "loading": found.loading,
    }


def show_trainjob(user: CurrentUser, connection: str, namespace: str, name: str) -> dict[str, Any]:
    """Return one TrainJob: its row, conditions, ranks and newest events."""
    details, other = _get_details(user, connection, namespace, name)
    if details is None:
        return other
    [row] = add_progress(user, [details.row])
    parts = {"conditions": details.conditions, "ranks": details.ranks, "events": details.events}
    return {"problem": "", "trainjob": row, "pods": len(details.pods), **parts}


def show_log(
    user: CurrentUser,
    connection: str,
    namespace: str,
    name: str,
    lines: Annotated[bool, Query(description="whether the lines are returned, too")] = True,
) -> dict[str, Any]:
    """Return the last log lines, the progress and the curve of a TrainJob.

    The curve is that of the loss or the reward. The user must be allowed to read the log of its task.
    """
    details, other = _get_details(user, connection, namespace, name)
    if details is None:
        return other
    dag = details.row["dag"]
    if not filter_readable_dags(user, [dag], LOGS):
        return {"problem": f"You may not read the logs of the DAG {dag}."}
    log = _LOG_TAILS.get(details.row["uid"], details.cluster, namespace).snapshot(details.pods)
    # Values that Airflow knows as secrets are shown as ***, as in a task's log.
    return {"problem": "", **log, "lines": [redact(line) for line in log["lines"]] if lines else []}


def download_log(user: CurrentUser, connection: str, namespace: str, name: str) -> Response:
    """Return the last log lines of a TrainJob as a text file; see [show_log][].

    Raises:
        HTTPException: the TrainJob does not exist, or its log cannot be read by the user or at present.
    """
    log = show_log(user, connection, namespace, name)
    if "lines" not in log:
        raise HTTPException(404, log["problem"] or "The TrainJobs of this connection are being listed. Try again.")
    text = "".join(f"{line}\n" for line in log["lines"])
    headers = {"Content-Disposition": f'attachment; filename="{name}.log"'}
    return PlainTextResponse(text, headers=headers)


def show_task(user: CurrentUser, dag: str, run: str, task: str, index: int = -1) -> dict[str, Any]:
    """Return a task instance: summary, TrainJobs of all tries, failure and scores.

    The scores are those of the newest runs of an evaluation. The failure is that of a TrainJob that may have been
    deleted. Both require the permission to read XComs, and the log lines of the failure the permission to read the
    task's log.
    """
    instance = (dag, run, task, index)
    if not filter_readable_dags(user, [dag], TASKS) or (record := read_instance(instance)) is None:
        raise HTTPException(404, _NO_TASK_MESSAGE)
    found, sources = find_rows(user), list_usable_sources(user)
    attempts = merge_attempts(
        [row for row in found.rows if get_instance_key(row) == instance],
        read_recorded_attempts(instance),
        sources[0].connection if sources else "",
    )
    may_read_xcoms = bool(filter_readable_dags(user, [dag], XCOMS))
    keys = (PROGRESS_KEY, _RESULT_KEY, FAILURE_KEY)
    xcoms = read_xcoms([instance], keys).get(instance, TaskXComs()) if may_read_xcoms else TaskXComs()
    stored = xcoms.others.get(FAILURE_KEY, {})
    failure = select_failure(stored, with_log=bool(stored and filter_readable_dags(user, [dag], LOGS)))
    result = xcoms.others.get(_RESULT_KEY, {})
    # A task writes the connections of its recorded TrainJobs, so only those of the configuration are read.
    templates = {each.connection: read_link_templates(each.connection) for each in sources}
    shown_attempts = [{**each, "links": _list_links(each, templates.get(each["connection"], {}))} for each in attempts]
    for newest in shown_attempts[:1]:
        newest["links"] += find_tracked_run(xcoms.progress)
    return {
        "problem": "",
        "loading": found.loading,
        "summary": redact(
            summarize(record.state, record.try_number, attempts, xcoms.progress, result, xcoms.unreadable)
        ),
        "attempts": shown_attempts,
        "failure": redact(failure),
        "scores": redact(_read_score_curves(instance)) if "scores" in result else [],
    }


def _read_score_curves(instance: InstanceKey) -> list[dict[str, Any]]:
    runs = list_succeeded_instances(instance, _MAX_SCORED_RUNS)
    xcoms = read_xcoms(runs, [_RESULT_KEY])
    return select_score_curves(xcoms[run].others.get(_RESULT_KEY, {}) for run in runs if run in xcoms)


def _list_links(attempt: dict[str, Any], templates: dict[str, str]) -> list[dict[str, str]]:
    """Return the links to a TrainJob from the link templates of its connection.

    A template with `{server}` gives no link if the connection is not usable.
    """
    reference = JobReference(attempt["name"], attempt["namespace"], attempt["uid"])
    try:
        return list_links(templates, reference, lambda: JobSource(attempt["connection"]).connect()[0].server)
    except TrainJobError:
        without_server = {name: text for name, text in templates.items() if "{server}" not in text}
        return list_links(without_server, reference, str)


def show_comparison(user: CurrentUser, dag: str, run: str, task: str = "") -> dict[str, Any]:
    """Return the comparison of a DAG run's TrainJobs, or of one task's.

    Parameters are rendered template fields. Metrics require the permission to read XComs.
    """
    if not filter_readable_dags(user, [dag], TASKS):
        raise HTTPException(404, _NO_TASK_MESSAGE)
    found = find_rows(user)
    rows = {
        get_instance_key(row): row for row in found.rows if row["newest"] and (row["dag"], row["run"]) == (dag, run)
    }
    records = read_instances_of_run(dag, run, task)
    known = [record for record in records if record.key in rows or RENDERED_TRAINJOB in record.rendered_fields]
    may_read_xcoms = bool(filter_readable_dags(user, [dag], XCOMS))
    xcoms = read_xcoms((record.key for record in known), (PROGRESS_KEY, _RESULT_KEY)) if may_read_xcoms else {}
    nothing = TaskXComs()
    trials = [_build_trial(each, rows.get(each.key), xcoms.get(each.key, nothing), may_read_xcoms) for each in known]
    hidden = {
        f"{record.key[2]}: {key} is not shown, because {why}"
        for record in known
        for key, why in xcoms.get(record.key, nothing).unreadable.items()
        if key == PROGRESS_KEY
    }
    problems = [*found.problems, *redact(sorted(hidden)[:_MAX_HIDDEN_LINES])]
    return {"problem": "", "loading": found.loading, "problems": problems, "groups": compare(trials)}


def _build_trial(record: InstanceRecord, row: dict[str, Any] | None, xcoms: TaskXComs, may_read_xcoms: bool) -> Trial:
    """Return one task instance for the comparison.

    If the task has no progress, it is that which the trainer reports.
    """
    progress = xcoms.progress
    if row is not None and may_read_xcoms and not progress.get("step"):
        progress = {**progress, **row["trainer_status"]}
    _, _, task, index = record.key
    return Trial(
        task=task,
        index=index,
        operator=record.operator,
        phase=row["phase"] if row else str(progress.get("phase") or record.state),
        job={name: row[name] for name in ("connection", "namespace", "name")} if row else {},
        fields=record.rendered_fields,
        metrics=collect_metrics(progress, xcoms.others.get(_RESULT_KEY, {})),
    )


def _get_details(user: Any, connection: str, namespace: str, name: str) -> tuple[JobDetails | None, dict[str, Any]]:
    """Return the TrainJob, or the response that says why it cannot be shown now.

    Raises:
        HTTPException: the TrainJob does not exist or the user may not see it. Both have the same response, 404.
    """
    for source in list_usable_sources(user):
        if source.connection != connection:
            continue
        try:
            row = list_query(source).get().rows.get(name)
            if row is None or row["namespace"] != namespace or not filter_rows_of_team([row], source.team):
                continue
            if not filter_readable_dags(user, [row["dag"]], TASKS):
                break
            details = details_query(source, name).get()
        except QueryRunning:
            return None, {"problem": "", "loading": [str(source)]}
        except TrainJobError as error:
            known = _find_last_row(user, source, namespace, name) if isinstance(error, AWAY_ERRORS) else {}
            return None, {"problem": describe_problem(source, error), **known}
        if details is None:
            return None, {"problem": "The TrainJob was deleted."}
        return replace(details, row={**details.row, "newest": row["newest"]}), {}
    raise HTTPException(404, _NOT_FOUND_MESSAGE)


def _find_last_row(user: Any, source: JobSource, namespace: str, name: str) -> dict[str, Any]:
    """Return the newest known row of a TrainJob as `trainjob`.

    The result is empty if there is none, or if the user may not see it.
    """
    row = read_last_rows(source, has_failed=True).get(name)
    if row is None or row["namespace"] != namespace or not filter_rows_of_team([row], source.team):
        return {}
    if not filter_readable_dags(user, [row["dag"]], TASKS):
        return {}
    [shown] = add_progress(user, [row])
    return {"trainjob": shown}


def _without_metrics(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for the list, which shows only the reward among the metrics."""
    progress = row["progress"]
    if not progress or "metrics" not in progress:
        return row
    reward = {"reward": progress["metrics"]["reward"]} if "reward" in progress["metrics"] else {}
    return {**row, "progress": {**progress, "metrics": reward}}
