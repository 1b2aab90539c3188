"""Reads of Airflow's database about the DAG runs and the DAGs of TrainJobs: dates, users and owners.

The callers check the permissions of the user first.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import select

from trainjob_airflow.plugins.job_list import format_time
from trainjob_airflow.plugins.task_records import split_for_queries

DagRunKey = tuple[str, str]
"""DAG ID and run ID."""
_MAX_RUNS = 20_000
_NO_RUN: Mapping[str, str] = {"run_date": "", "user": ""}


class RunRecords:
    """Dates and users of DAG runs, which do not change, for at most 20,000 runs."""

    def __init__(self) -> None:
        """Create an empty collection."""
        self._lock = threading.Lock()
        self._known: dict[DagRunKey, Mapping[str, str]] = {}

    def read(self, runs: Collection[DagRunKey]) -> dict[DagRunKey, Mapping[str, str]]:
        """Return `run_date` and `user` of the runs that Airflow knows.

        `run_date` is the logical date, or `run_after` for a run without a logical date. `user` started the run; it is
        empty for a scheduled run.
        """
        with self._lock:
            found = {run: self._known[run] for run in runs if run in self._known}
        missing = sorted(set(runs) - found.keys())
        for part in split_for_queries(missing):
            found |= _read_runs(part)
        with self._lock:
            self._known |= {run: found[run] for run in missing if run in found}
            for run in list(self._known)[: max(0, len(self._known) - _MAX_RUNS)]:
                del self._known[run]
        return found


def _read_runs(runs: Collection[DagRunKey]) -> dict[DagRunKey, Mapping[str, str]]:
    columns = (DagRun.dag_id, DagRun.run_id, DagRun.logical_date, DagRun.run_after, DagRun.triggering_user_name)
    dags, ids = ({run[at] for run in runs} for at in range(2))
    statement = select(*columns).where(DagRun.dag_id.in_(dags), DagRun.run_id.in_(ids))
    wanted = set(runs)
    with create_session() as session:
        rows = session.execute(statement).all()
    return {
        (row.dag_id, row.run_id): {
            "run_date": format_time(row.logical_date or row.run_after),
            "user": row.triggering_user_name or "",
        }
        for row in rows
        if (row.dag_id, row.run_id) in wanted
    }


def _read_owners(dags: Collection[str]) -> dict[str, list[str]]:
    statement = select(DagModel.dag_id, DagModel.owners).where(DagModel.dag_id.in_(dags))
    with create_session() as session:
        rows = session.execute(statement).all()
    return {row.dag_id: [name.strip() for name in (row.owners or "").split(",") if name.strip()] for row in rows}


_RUNS = RunRecords()


def add_run_fields(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with `run_date` and `user` of the run, and `owner` of the DAG."""
    rows = list(rows)
    runs = _RUNS.read({(row["dag"], row["run"]) for row in rows})
    owners = _read_owners({row["dag"] for row in rows})
    return [{**row, **runs.get((row["dag"], row["run"]), _NO_RUN), "owner": owners.get(row["dag"], [])} for row in rows]
