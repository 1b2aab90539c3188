"""View of one task instance: a summary, the TrainJobs of all its tries with their links, and its stored failure.

The functions do no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from trainjob_airflow.links.trainjob import TRACKED_RUN_LINK
from trainjob_airflow.plugins.stored_json import is_number

_RESULT_FIELDS = ("location", "digest", "revision", "uri", "files", "bytes", "result")
_MAX_TEXT_LENGTH = 300
_MAX_SCORES = 20
_FAILURE_TEXTS = ("kind", "reason", "trainjob", "uid")
_PLACE = ("step", "rank", "exit_code")


def merge_attempts(
    rows: Iterable[Mapping[str, Any]], recorded: Iterable[Mapping[str, Any]], connection: str
) -> list[dict[str, Any]]:
    """Return the TrainJobs of all tries of a task instance, newest first.

    Args:
        rows: rows of those that exist in the cluster.
        recorded: those that the task recorded. They may have been deleted.
        connection: ID of the connection for recorded TrainJobs without one.

    Returns:
        One dict for each TrainJob, with `connection`, `namespace`, `name`, `uid`, `attempt`, `try_number` (None if it
        is not known), `phase`, `created` and `ended`. These three are empty if the TrainJob does not exist any more.
    """
    merged: dict[str, dict[str, Any]] = {}
    for record in recorded:
        if all(isinstance(record.get(name), str) for name in ("name", "namespace", "uid")):
            numbers = {name: record.get(name) for name in ("attempt", "try_number")}
            merged[record["uid"]] = {
                "connection": str(record.get("connection") or connection),
                **{name: record[name] for name in ("namespace", "name", "uid")},
                **{name: number if is_number(number) else None for name, number in numbers.items()},
                **dict.fromkeys(("phase", "created", "ended"), ""),
            }
    for row in rows:
        names = ("connection", "namespace", "name", "uid", "attempt", "phase", "created", "ended")
        before = merged.get(row["uid"], {"try_number": None})
        merged[row["uid"]] = {**before, **{name: row[name] for name in names}}
    return sorted(merged.values(), key=lambda each: (each["attempt"] or 0, each["created"]), reverse=True)


def summarize(
    state: str,
    try_number: int,
    attempts: Iterable[Mapping[str, Any]],
    progress: Mapping[str, Any],
    result: Mapping[str, Any],
    unreadable: Mapping[str, str] = MappingProxyType({}),
) -> list[tuple[str, str]]:
    """Return the summary of a task instance as names and texts.

    Args:
        state: state of the task instance.
        try_number: number of its newest try.
        attempts: see [merge_attempts][].
        progress: its XCom `progress`; empty if it has none.
        result: its XCom `return_value`; empty if it has none.
        unreadable: for each XCom that is not shown, a text that says why.
    """
    newest = next(iter(attempts), None)
    metrics = progress.get("metrics")
    lines = [
        ("State", f"{state or 'no state'}, try {try_number}"),
        ("TrainJob", f"{newest['namespace']}/{newest['name']}, attempt {newest['attempt']}" if newest else ""),
        ("Phase", str((newest or {}).get("phase") or progress.get("phase") or "")),
        ("Reason", str(progress.get("reason") or "")),
        *(("Not shown", f"{key}: {problem}") for key, problem in unreadable.items()),
        ("Seconds", _format(result.get("seconds"))),
        ("Step", f"{progress['step']} of {progress.get('total') or '?'}" if progress.get("step") else ""),
        ("Loss", _format(progress.get("loss"))),
        *((str(name), _format(value)) for name, value in (metrics.items() if isinstance(metrics, Mapping) else ())),
        *((name.capitalize(), _format(result.get(name))) for name in _RESULT_FIELDS),
    ]
    return [(name, text[:_MAX_TEXT_LENGTH]) for name, text in lines if text]


def find_tracked_run(progress: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return a list with the link to the tracked run; an empty list without a run.

    Args:
        progress: the XCom `progress` of the task instance.
    """
    url = str(progress.get(TRACKED_RUN_LINK.field) or "")
    return [{"name": TRACKED_RUN_LINK.name, "url": url}] if url.startswith(("https://", "http://")) else []


def select_score_curves(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the scores of a task's evaluations by run, for at most 20 metrics.

    A metric that only one run has is left out.

    Args:
        results: the XComs `return_value` of the runs, oldest first.

    Returns:
        For each metric `metric`, `points` and `champion_points`, which are numbers of runs from 1, and values.
    """
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for number, result in enumerate(results, start=1):
        for key, points in (("scores", "points"), ("champion_scores", "champion_points")):
            scores = result.get(key)
            for metric, score in scores.items() if isinstance(scores, Mapping) else ():
                value = score.get("value") if isinstance(score, Mapping) else None
                if is_number(value):
                    curve = curves.setdefault(metric, {"points": [], "champion_points": []})
                    curve[points].append((number, value))
    return [{"metric": name, **curve} for name, curve in curves.items() if len(curve["points"]) > 1][:_MAX_SCORES]


def select_failure(failure: Mapping[str, Any], *, with_log: bool) -> dict[str, Any] | None:
    """Return the known fields of the XCom `failure`; None if there is no failure.

    Args:
        failure: the XCom.
        with_log: whether the user may read the log of the task. Otherwise `log` is empty, and so is `description`,
            because it may quote the last lines of the log.

    Returns:
        `kind` (class of the error), `reason`, `trainjob`, `uid` and `attempt`. `description` and `log` are lists of
        lines.
    """
    texts = {name: str(failure.get(name) or "") for name in _FAILURE_TEXTS}
    if not any(texts.values()):
        return None
    place = [f"{name.replace('_', ' ')} {failure[name]}" for name in _PLACE if failure.get(name) not in (None, "")]
    reasons = [failure.get("message"), failure.get("hang"), ", ".join(place)]
    description = [*reasons, *_lines_of(failure, "events"), failure.get("hint")]
    return {
        **texts,
        "attempt": failure.get("attempt"),
        "description": [str(line) for line in description if line] if with_log else [],
        "log": _lines_of(failure, "log") if with_log else [],
    }


def _lines_of(failure: Mapping[str, Any], name: str) -> list[str]:
    lines = failure.get(name)
    return [str(line) for line in lines] if isinstance(lines, list) else []


def _format(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:.0f}"
    return "" if value is None else str(value)
