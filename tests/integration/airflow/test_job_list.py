"""Tests of the selection, the order and the pages of the list of TrainJobs, without I/O."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from trainjob_airflow.plugins.job_list import ListFilters, cut_page, format_time, list_runs, select_rows, sort_rows

NOW = datetime(2026, 1, 1, 1, tzinfo=timezone.utc)


def row(number, *, dag="d", phase="Running", **more):
    finished = phase in ("Complete", "Failed")
    texts = {"name": f"job-{number}", "dag": dag, "task": "train", "run": "manual__1", "queue": "", "phase": phase}
    place = {"connection": "near", "namespace": "ml", "index": -1, "owner": [], "user": "", "run_date": ""}
    ended = f"2026-01-01T00:{number:02}:30Z" if finished else ""
    times = {"created": f"2026-01-01T00:{number:02}:00Z", "finished": finished, "ended": ended}
    return {**texts, **place, **times, **more}


def names(rows):
    return [each["name"] for each in rows]


def select(rows, *, text="", since="", until="", **chosen):
    return select_rows(rows, ListFilters(chosen, text, since, until))


def test_active_trainjobs_come_first_and_the_newest_of_each_group_first():
    rows = sort_rows([row(1), row(2, phase="Complete"), row(3), row(4, phase="Failed")])
    assert names(rows) == ["job-3", "job-1", "job-4", "job-2"]


@pytest.mark.parametrize(("offset", "first", "shown"), [(0, 0, 2), (2, 2, 2), (4, 4, 1), (6, 4, 1), (1000, 4, 1)])
def test_an_offset_behind_the_end_shows_the_last_page(offset, first, shown):
    at, page = cut_page([row(number) for number in range(5)], offset, 2)
    assert (at, len(page)) == (first, shown)


def test_an_empty_list_has_an_empty_page():
    selection = select([])
    assert (selection.rows, cut_page([], 10, 2)) == ([], (0, []))
    assert all(values == {} for values in selection.counts.values())


def test_counts_show_what_each_value_would_select_with_the_other_filters():
    rows = [row(1, dag="a"), row(2, dag="a", phase="Failed"), row(3, dag="b"), row(4, dag="b", phase="Complete")]
    found = select(rows, dag="a", phase="Failed")
    assert names(found.rows) == ["job-2"]
    assert found.counts["dag"] == {"a": 1}
    assert found.counts["phase"] == {"Failed": 1, "Running": 1}
    assert select(rows, dag="a").counts["dag"] == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"connection": "far"}, [2]),
        ({"namespace": "other"}, [3]),
        ({"queue": "gpus"}, [1]),
        ({"owner": "anna"}, [1, 2]),
        ({"owner": "ben"}, [2]),
        ({"user": "carl"}, [3]),
        ({"run": "r2"}, [3]),
        ({"text": "JOB-3 carl"}, [3]),
        ({"text": "job-3 complete"}, []),
        ({"since": "2026-01-01T00:02:31Z"}, [1, 3]),
        ({"until": "2026-01-01T00:02:00Z"}, [1, 2]),
        ({"since": "2026-01-01T00:02:30Z", "until": "2026-01-01T00:02:00Z", "owner": "ben"}, [2]),
    ],
)
def test_each_filter_selects_its_rows(filters, found):
    rows = [
        row(1, queue="gpus", owner=["anna"]),
        row(2, connection="far", phase="Complete", owner=["anna", "ben"]),
        row(3, namespace="other", user="carl", run="r2"),
    ]
    assert names(select(rows, **filters).rows) == [f"job-{number}" for number in found]


def progressed(number, phase="Running", **progress):
    usage = {"gpu_seconds": progress.pop("gpu_seconds")} if "gpu_seconds" in progress else None
    return row(number, phase=phase, progress=progress or None, usage=usage)


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("name", [0, 1, 2, 3]),
        ("-name", [3, 2, 1, 0]),
        ("created", [0, 1, 2, 3]),
        ("-created", [3, 2, 1, 0]),
        ("duration", [3, 2, 1, 0]),  # the last one has ended after 30 s
        ("loss", [1, 0, 2, 3]),  # without a value: in the order without a column
        ("-loss", [0, 1, 2, 3]),
        ("progress", [1, 0, 3, 2]),
        ("gpu_hours", [2, 1, 0, 3]),
        ("-gpu_hours", [2, 1, 0, 3]),
        ("phase", [3, 2, 1, 0]),
    ],
)
def test_rows_are_sorted_by_a_column_and_rows_without_a_value_come_last(sort, order):
    rows = [
        progressed(0, loss=2.0, percent=50),
        progressed(1, loss=5.0, percent=10, metrics={"reward": 1.5}),
        progressed(2, gpu_seconds=7.0),
        progressed(3, phase="Complete", gpu_seconds=0),
    ]
    assert names(sort_rows(rows, sort, NOW)) == [f"job-{number}" for number in order]


def test_rows_with_equal_values_keep_their_order_in_any_order_of_the_input():
    rows = [row(number, run_date="2026-01-01T00:00:00Z") for number in range(6)]
    for given in (rows, rows[::-1], [*rows[3:], *rows[:3]]):
        assert names(sort_rows(given, "run", NOW)) == [f"job-{number}" for number in range(5, -1, -1)]
        assert names(sort_rows(given, "-run", NOW)) == [f"job-{number}" for number in range(5, -1, -1)]


def test_the_runs_of_a_dag_are_the_newest_hundred():
    rows = [row(1, run=f"r{number}", run_date=f"2026-01-01T00:00:{number % 60:02}Z") for number in range(120)]
    runs = list_runs(rows, "d", {f"r{number}": 1 for number in range(120)})
    assert (len(runs), runs[0]["date"]) == (100, "2026-01-01T00:00:59Z")


def test_a_time_without_a_zone_is_utc():
    assert format_time(NOW.replace(tzinfo=None)) == format_time(NOW) == "2026-01-01T01:00:00Z"
    assert format_time(None) == ""
