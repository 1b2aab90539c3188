"""Tests of finished work that Airflow did or did not store, with kills of `airflow` on the laptop cluster."""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from trainjob.manifest import labels

pytestmark = pytest.mark.usefixtures("airflow")
DATABASE = Path(os.environ["AIRFLOW_HOME"], "airflow.db")


class Runs:
    """Runs of the DAG `delivery`, whose only task can be cleared and run again."""

    def __init__(self, airflow, cluster):
        self._airflow, self._cluster = airflow, cluster
        self.run = ""

    def start(self, **environment):
        """Start a DAG run and return the output."""
        done = self._airflow("dags", "test", "delivery", **environment)
        assert done.returncode == (-signal.SIGKILL if "KILL" in environment else 0), done.stdout[-4000:]
        with closing(sqlite3.connect(DATABASE)) as database:
            query = "select run_id from dag_run where dag_id = 'delivery' order by id desc limit 1"
            (self.run,) = database.execute(query).fetchone()
        return done.stdout

    def repeat(self, **environment):
        """Clear the task, run it again, and return the output."""
        with closing(sqlite3.connect(DATABASE)) as database, database:
            # The scheduler fails a task whose worker sends no heartbeat any more.
            ended = "update task_instance set state = 'failed' where dag_id = 'delivery' and state = 'running'"
            database.execute(ended)
        cleared = self._airflow("tasks", "clear", "-y", "delivery")
        assert cleared.returncode == 0, cleared.stdout[-4000:]
        done = self._airflow("tasks", "test", "delivery", "train", self.run, **environment)
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    def list_jobs(self):
        """Return the TrainJobs of the run by attempt."""
        selector = f"{labels.RUN}={labels.label_value(self.run)}"
        jobs = self._cluster.list_trainjobs("default", selector)
        return {int(job["metadata"]["labels"][labels.ATTEMPT]): job for job in jobs}


@pytest.fixture
def runs(airflow, cluster):
    return Runs(airflow, cluster)


@pytest.mark.parametrize("deferrable", ["0", "1"], ids=["worker", "deferred"])
def test_a_delivered_result_is_marked_and_repeated_after_a_clear(runs, deferrable):
    runs.start(DEFERRABLE=deferrable)
    assert labels.get_annotation(runs.list_jobs()[1], labels.DELIVERED)
    output = runs.repeat(DEFERRABLE=deferrable)
    assert "attempt 2, created" in output
    assert labels.get_annotation(runs.list_jobs()[2], labels.DELIVERED)


@pytest.mark.parametrize("deferrable", ["0", "1"], ids=["worker", "deferred"])
def test_an_undelivered_result_is_adopted_after_a_clear(runs, deferrable):
    runs.start(KILL="1", DEFERRABLE=deferrable)
    assert not labels.get_annotation(runs.list_jobs()[1], labels.DELIVERED)
    output = runs.repeat(DEFERRABLE=deferrable)
    assert "attempt 1, adopted" in output
    assert "the work was requested again" in output
    assert list(runs.list_jobs()) == [1]
    assert labels.get_annotation(runs.list_jobs()[1], labels.DELIVERED)


@pytest.mark.parametrize(
    ("changed", "attempt"),
    [({"MEMORY": "96Mi"}, 1), ({"EPOCHS": "2"}, 2), ({"ADOPT": "0"}, 2)],
    ids=["memory", "epochs", "adopt_undelivered=False"],
)
def test_a_change_of_the_training_or_the_option_repeats_undelivered_work(runs, changed, attempt):
    runs.start(KILL="1")
    output = runs.repeat(**changed)
    assert max(runs.list_jobs()) == attempt
    assert f"attempt {attempt}, {'adopted' if attempt == 1 else 'created'}" in output
    assert ("its request has changed (spec hash " in output) == ("MEMORY" in changed)
