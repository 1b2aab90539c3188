"""Function that runs a DAG with Airflow's own command, and reads its results from Airflow's database."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path


def run_dag(
    airflow: Callable[..., subprocess.CompletedProcess[str]], dag: str, **environment: str
) -> tuple[str, dict[str, tuple[str, int]], str]:
    """Run a DAG to its end.

    Returns:
        The output of the command; the state and the number of the last try by task; the run's state.
    """
    done = airflow("dags", "test", dag, **environment)
    database = sqlite3.connect(f"file:{Path(os.environ['AIRFLOW_HOME'], 'airflow.db')}?mode=ro", uri=True)
    query = "select run_id, state from dag_run where dag_id = ? order by id desc limit 1"
    run, state = database.execute(query, (dag,)).fetchone()
    query = "select task_id, state, try_number from task_instance where dag_id = ? and run_id = ?"
    tasks = {task: (state, try_number) for task, state, try_number in database.execute(query, (dag, run))}
    database.close()
    return done.stdout, tasks, state
