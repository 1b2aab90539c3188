"""Tests of finished work that Airflow did or did not store, with kills of `airflow` on the laptop cluster."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.polling import wait_until
from trainjob import CustomTrainerContainer, TrainJob, wait
from trainjob.lifecycle import mark_delivered
from trainjob.manifest import labels
from trainjob.spec import WorkspaceVolume
from trainjob_airflow import delivery
from trainjob_airflow.hooks.trainjob import TrainJobHook
from trainjob_airflow.operators.submission import submit_for_task

DATABASE = Path(os.environ["AIRFLOW_HOME"], "airflow.db")


class Runs:
    """Runs of the DAG `delivery`, whose only task can be cleared and run again."""

    def __init__(self, airflow, cluster):
        self._airflow, self._cluster = airflow, cluster
        self.run = ""

    def start(self, **environment):
        """Start a DAG run and return the output."""
        done = self._airflow("dags", "test", "delivery", **environment)
        assert (done.returncode == -signal.SIGKILL) == (environment.get("LOST") == "kill"), done.stdout[-4000:]
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


@pytest.mark.slow
@pytest.mark.parametrize("deferrable", ["0", "1"])
@pytest.mark.parametrize("lost", ["kill", "fail"])
def test_finished_work_is_adopted_after_a_clear_until_airflow_has_stored_the_success(runs, lost, deferrable):
    output = runs.start(LOST=lost, DEFERRABLE=deferrable)
    assert ("is not marked as delivered: Airflow has not stored the success" in output) == (lost == "fail")
    assert not labels.get_annotation(runs.list_jobs()[1], labels.DELIVERED)

    output = runs.repeat(MEMORY="96Mi", DEFERRABLE=deferrable)
    assert "attempt 1, adopted" in output
    assert "the work was requested again, and its request has changed (spec hash " in output
    assert labels.get_annotation(runs.list_jobs()[1], labels.DELIVERED)

    assert "attempt 2, created" in runs.repeat(MEMORY="96Mi", DEFERRABLE=deferrable)
    assert labels.get_annotation(runs.list_jobs()[2], labels.DELIVERED)


# -- decisions of a submission ----------------------------------------------------------------------------------------


def make_context(run, *, max_tries=1, clear_number=0, run_after=timedelta(minutes=-1), start=timedelta(0)):
    ti = SimpleNamespace(dag_id="delivery", task_id="train", run_id=run, map_index=-1, try_number=2)
    ti.max_tries = max_tries
    now = datetime.now(timezone.utc)
    dag_run = SimpleNamespace(run_after=now + run_after, start_date=now + start, clear_number=clear_number)
    return {"ti": ti, "dag_run": dag_run}


def step(*, epochs=1, **trainer):
    command = ("sh", "-c", f"echo trained for {epochs} epochs")
    return TrainJob(trainer=CustomTrainerContainer(image="busybox", command=command, **trainer))


def submit_step(cluster, context, request, **options):
    """Submit as a task does, and return the reference with the notices."""
    notices = []
    options = {"namespace": "", "prefix": "train", "on_notice": notices.append, **options}
    return submit_for_task(context, cluster, request, **options), notices


@pytest.fixture
def finished(cluster, unique, airflow_environment):
    """Return the run and the reference of a TrainJob that has succeeded and was not delivered."""
    reference, _ = submit_step(cluster, make_context(unique, start=timedelta(minutes=-1)), step())
    assert wait(cluster, reference).succeeded
    return unique, reference


CLEARED = {"max_tries": 2, "clear_number": 1, "start": timedelta(minutes=1)}  # a clear sets the run's start anew


@pytest.mark.parametrize(
    ("request_", "options", "is_adopted"),
    [
        (step(), {}, True),
        (step(resources_per_node={"memory": "96Mi"}), {}, True),
        (step(epochs=2), {}, False),
        (step(), {"adopt_undelivered": False}, False),
    ],
    ids=["same request", "memory", "epochs", "adopt_undelivered=False"],
)
def test_a_cleared_task_adopts_undelivered_work_of_the_same_training(cluster, finished, request_, options, is_adopted):
    run, reference = finished
    again, notices = submit_step(cluster, make_context(run, **CLEARED), request_, **options)
    assert (again.uid == reference.uid, again.adopted, bool(notices)) == (is_adopted,) * 3


def test_a_cleared_task_repeats_delivered_work(cluster, finished):
    run, reference = finished
    mark_delivered(cluster, reference)
    again, notices = submit_step(cluster, make_context(run, **CLEARED), step())
    assert (again.attempt, again.adopted, notices) == (2, False, [])


@pytest.mark.parametrize("values", [{}, CLEARED], ids=["never cleared", "cleared"])
def test_a_new_run_of_the_same_id_repeats_undelivered_work_of_the_deleted_run(cluster, finished, values):
    run, _ = finished
    later = {"run_after": timedelta(seconds=1), "start": timedelta(seconds=2)}
    assert submit_step(cluster, make_context(run, **values | later), step())[0].attempt == 2


def test_undelivered_work_in_a_workspace_that_was_created_again_is_repeated(cluster, unique, airflow_environment):
    workspace = {"namespace": "default", "name": unique}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": workspace,
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
    }
    cluster.create_claim(claim)
    request = step().model_copy(update={"workspace": WorkspaceVolume(claim=unique)})
    reference, _ = submit_step(cluster, make_context(unique, start=timedelta(minutes=-1)), request)
    assert wait(cluster, reference).succeeded
    assert submit_step(cluster, make_context(unique, **CLEARED), request)[0].uid == reference.uid
    cluster.delete_claim(unique, "default", cluster.get_claim(unique, "default")["metadata"]["uid"])
    wait_until(lambda: cluster.get_claim(unique, "default") is None)
    wait_until(lambda: datetime.now(timezone.utc).isoformat()[:19] > get_creation_time(cluster, reference)[:19])
    cluster.create_claim(claim)
    assert submit_step(cluster, make_context(unique, **CLEARED), request)[0].attempt == 2


def get_creation_time(cluster, reference):
    return cluster.get_trainjob(reference.name, reference.namespace)["metadata"]["creationTimestamp"]


# -- the listener -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "is_marked"), [("success", True), ("failed", False), ("restarting", False), ("", False)]
)
def test_a_result_is_marked_only_if_airflow_has_stored_the_success(
    cluster, finished, monkeypatch, caplog, state, is_marked
):
    """Airflow 3.3 calls the listener also if the scheduler has failed the task a moment before its success."""
    _, reference = finished
    monkeypatch.setattr(delivery, "get_user_decision", lambda _: state)
    delivery.record_result(delivery.Result(TrainJobHook(), reference, None))
    delivery.on_task_instance_success(previous_state=None, task_instance=None)
    job = cluster.get_trainjob(reference.name, reference.namespace)
    assert bool(labels.get_annotation(job, labels.DELIVERED)) == is_marked
    assert ("is not marked as delivered" in caplog.text) != is_marked


def test_a_task_succeeds_although_its_result_cannot_be_marked(finished, monkeypatch, caplog):
    _, reference = finished
    monkeypatch.setattr(delivery, "get_user_decision", lambda _: "success")
    monkeypatch.setenv(
        "AIRFLOW_CONN_AWAY", json.dumps({"conn_type": "kubernetes", "extra": {"kube_config_path": "/none"}})
    )
    delivery.record_result(delivery.Result(TrainJobHook("away"), reference, None))
    delivery.on_task_instance_success(previous_state=None, task_instance=None)
    assert "delete the TrainJob before the task is cleared" in caplog.text


def test_a_process_without_a_result_marks_nothing(monkeypatch):
    monkeypatch.setattr(delivery, "get_user_decision", lambda _: pytest.fail("a request was sent"))
    delivery.on_task_instance_success(previous_state=None, task_instance=None)
