"""Selection of the rows that one request of the page shows, with the counts for its filters.

The functions do no I/O. They get only rows that the user may see, so no count includes another TrainJob.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any

from trainjob.status.nested_fields import parse_time

_MAX_RUNS = 100
PROGRESS_COLUMNS = ("progress", "loss", "gpu_hours")
"""Columns whose values come from the progress and the usage of a row's task."""
_SEARCHED_FIELDS = ("name", "dag", "task", "run", "phase", "connection", "namespace", "queue", "user")


@dataclass(frozen=True)
class FacetValues:
    """Values of the filters with a fixed set of values; empty for all.

    A row's `owner` is a list of values; the others are texts.
    """

    dag: str = ""
    phase: str = ""
    connection: str = ""
    namespace: str = ""
    queue: str = ""
    owner: str = ""
    user: str = ""
    run: str = ""


FACETS = tuple(each.name for each in fields(FacetValues))


@dataclass(frozen=True)
class ListFilters:
    """Filters of one request.

    Attributes:
        chosen: value of each facet; a facet without a value has no effect.
        text: words that must all occur in a row, in any case of the letters.
        since: RFC 3339 time; a TrainJob that ended earlier is left out. Empty for none.
        until: RFC 3339 time; a TrainJob that was created later is left out. Empty for none.
    """

    chosen: Mapping[str, str]
    text: str = ""
    since: str = ""
    until: str = ""


@dataclass(frozen=True)
class Selection:
    """Rows that match all filters.

    Attributes:
        rows: the rows.
        counts: for each facet, the number of TrainJobs that each of its values would show with all other filters.
    """

    rows: list[dict[str, Any]]
    counts: Mapping[str, Mapping[str, int]]


def format_time(moment: datetime | None) -> str:
    """Return a time in the form of Kubernetes, which sorts as text; empty for None.

    A time without a zone is UTC.
    """
    if moment is None:
        return ""
    return to_utc(moment).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_utc(moment: datetime) -> datetime:
    """Return a time in UTC; a time without a zone is UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)


def select_rows(rows: Iterable[dict[str, Any]], filters: ListFilters) -> Selection:
    """Return the rows that match, and the counts for the values that the user can select."""
    words = filters.text.lower().split()
    chosen = {name: value for name, value in filters.chosen.items() if value}
    counts = {name: Counter[str]() for name in FACETS}
    found = []
    for row in rows:
        if not (_is_within(row, filters) and _has_words(row, words)):
            continue
        failed = [name for name, value in chosen.items() if value not in _values_of(row, name)]
        if not failed:
            found.append(row)
        for name in failed if len(failed) == 1 else () if failed else FACETS:
            counts[name].update(filter(None, _values_of(row, name)))
    return Selection(found, {name: dict(sorted(values.items())) for name, values in counts.items()})


def list_runs(rows: Iterable[Mapping[str, Any]], dag: str, counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return `run`, `date` and `count` of the newest 100 DAG runs of one DAG.

    Args:
        rows: rows that may belong to the runs.
        dag: ID of the DAG.
        counts: number of TrainJobs by run ID.
    """
    dates = {row["run"]: row["run_date"] for row in rows if row["dag"] == dag}
    newest = sorted(counts, key=lambda run: (dates.get(run, ""), run), reverse=True)[:_MAX_RUNS]
    return [{"run": run, "date": dates.get(run, ""), "count": counts[run]} for run in newest]


def _values_of(row: Mapping[str, Any], facet: str) -> Sequence[str]:
    value = row.get(facet) or ""
    return value if isinstance(value, list) else (value,)


def _is_within(row: Mapping[str, Any], filters: ListFilters) -> bool:
    has_ended_before = filters.since and row["ended"] and row["ended"] < filters.since
    return not has_ended_before and not (filters.until and row["created"] > filters.until)


def _has_words(row: Mapping[str, Any], words: Sequence[str]) -> bool:
    text = " ".join(str(row.get(name) or "") for name in _SEARCHED_FIELDS).lower() if words else ""
    return all(word in text for word in words)


def sort_rows(rows: Iterable[dict[str, Any]], sort: str = "", now: datetime | None = None) -> list[dict[str, Any]]:
    """Return the rows in the order of a column.

    Rows with equal values are in the order without a column: active TrainJobs first, and the newest of each group
    first. Rows without a value come last in both directions.

    Args:
        rows: the rows; for a column of [PROGRESS_COLUMNS][], with their progress.
        sort: name of a column; with `-` before it, the greatest value comes first. Empty for the order without one.
        now: current time, for the duration of TrainJobs that have not ended.
    """
    ordered = sorted(rows, key=lambda row: (row["connection"], row["namespace"], row["name"]))
    ordered.sort(key=lambda row: row["created"], reverse=True)
    ordered.sort(key=lambda row: row["finished"])
    if not sort:
        return ordered
    moment = now or datetime.now(timezone.utc)
    read_value = _COLUMNS[sort.removeprefix("-")]
    valued = [(read_value(row, moment), row) for row in ordered]
    known = [(value, row) for value, row in valued if value not in (None, "")]
    known.sort(key=lambda pair: pair[0], reverse=sort.startswith("-"))
    return [row for _, row in known] + [row for value, row in valued if value in (None, "")]


def cut_page(rows: Sequence[dict[str, Any]], offset: int, limit: int) -> tuple[int, Sequence[dict[str, Any]]]:
    """Return the rows of one page after the position of its first row.

    If there are not so many rows, it is the last page.
    """
    first = min(offset, max(0, len(rows) - 1) // limit * limit)
    return first, rows[first : first + limit]


def _read_duration(row: Mapping[str, Any], now: datetime) -> float | None:
    start, end = parse_time(row["created"]), parse_time(row["ended"]) if row["ended"] else now
    return (end - start).total_seconds() if start and end else None


def _read_loss(row: Mapping[str, Any], _: datetime) -> float | None:
    """Return the reward if there is one, and the loss otherwise, as the column shows it."""
    progress = row.get("progress") or {}
    reward = (progress.get("metrics") or {}).get("reward")
    value = progress.get("loss") if reward is None else reward
    return float(value) if isinstance(value, int | float) else None


def _read_percent(row: Mapping[str, Any], _: datetime) -> float | None:
    percent = 100.0 if row["phase"] == "Complete" else (row.get("progress") or {}).get("percent")
    return float(percent) if isinstance(percent, int | float) else None


def _read_gpu_seconds(row: Mapping[str, Any], _: datetime) -> float | None:
    return (row.get("usage") or {}).get("gpu_seconds") or None


_COLUMNS: Mapping[str, Callable[[Mapping[str, Any], datetime], Any]] = {
    "phase": lambda row, _: row["phase"],
    "name": lambda row, _: row["name"],
    "cluster": lambda row, _: (row["connection"], row["namespace"], row["queue"]),
    "task": lambda row, _: (row["dag"], row["task"], row["index"]),
    "run": lambda row, _: row.get("run_date"),
    "progress": _read_percent,
    "loss": _read_loss,
    "created": lambda row, _: row["created"],
    "duration": _read_duration,
    "gpu_hours": _read_gpu_seconds,
}
SORT_PATTERN = f"^(-?({'|'.join(_COLUMNS)}))?$"
"""Pattern of the values of `sort`."""
