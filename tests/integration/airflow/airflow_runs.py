"""Functions that run a DAG with Airflow's own command, and read its results from Airflow's database."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest


def both_modes() -> pytest.MarkDecorator:
    """Return the argument `deferrable` with both modes, marked slow."""
    modes = {"deferrable": "1", "on the worker": "0"}
    values = [pytest.param(value, id=name, marks=pytest.mark.slow) for name, value in modes.items()]
    return pytest.mark.parametrize("deferrable", values)


def run_dag(
    airflow: Callable[..., subprocess.CompletedProcess[str]], dag: str, **environment: str
) -> tuple[str, dict[str, tuple[str, int]], str]:
    """Run a DAG to its end.

    Returns:
        The output of the command; the state and the number of the last try by task; the run's state.
    """
    done = airflow("dags", "test", dag, **environment)
    with _open_database() as database:
        query = "select run_id, state from dag_run where dag_id = ? order by id desc limit 1"
        run, state = database.execute(query, (dag,)).fetchone()
        query = "select task_id, state, try_number from task_instance where dag_id = ? and run_id = ?"
        tasks = {task: (state, try_number) for task, state, try_number in database.execute(query, (dag, run))}
    return done.stdout, tasks, state


def read_xcom(dag: str, key: str, task: str = "") -> Any:
    """Return the value of an XCom in the newest run of a DAG that has it.

    Args:
        dag: ID of the DAG.
        key: key of the XCom.
        task: task ID; empty for any task.
    """
    with _open_database() as database:
        query = (
            "select value from xcom where dag_id = ? and key = ? and task_id like ? order by dag_run_id desc limit 1"
        )
        value = json.loads(database.execute(query, (dag, key, task or "%")).fetchone()[0])
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value  # a text


def list_xcom_keys(dag: str, task: str) -> set[str]:
    """Return the keys of the XComs of a task in the newest run of a DAG."""
    with _open_database() as database:
        query = (
            "select key from xcom where dag_id = ? and task_id = ? "
            "and dag_run_id = (select max(id) from dag_run where dag_id = ?)"
        )
        return {key for (key,) in database.execute(query, (dag, task, dag))}


def _open_database() -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(f"file:{Path(os.environ['AIRFLOW_HOME'], 'airflow.db')}?mode=ro", uri=True))
