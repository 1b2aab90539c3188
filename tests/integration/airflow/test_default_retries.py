"""Tests of the retries of tasks that state none, and of the errors for which these retries are used."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG, TaskGroup, task

from tests.support.airflow_versions import AIRFLOW_VERSION, DagSerialization
from trainjob import CustomTrainerContainer
from trainjob.errors import ClusterUnreachable, CommandFailed, WaitTimeout
from trainjob.status import Category, Outcome, Phase
from trainjob_airflow import TrainJobOperator
from trainjob_airflow.default_retries import DEFAULT_RETRIES, DefaultRetries, fail_without_retry
from trainjob_airflow.version_compat import AirflowFailException

TRAINER = CustomTrainerContainer(image="busybox")


def add_tasks():
    """Add one task in each way in which Airflow creates a task and merges `default_args`."""

    @task.trainjob
    def decorated():
        pass

    TrainJobOperator(task_id="plain", trainer=TRAINER)
    TrainJobOperator(task_id="none", trainer=TRAINER, retries=0)
    TrainJobOperator(task_id="same", trainer=TRAINER, retries=int(DEFAULT_RETRIES))
    TrainJobOperator(task_id="own", trainer=TRAINER, default_args={"retries": 5})
    TrainJobOperator.partial(task_id="mapped", trainer=TRAINER).expand(name=["a", "b"])
    TrainJobOperator.partial(task_id="mapped_same", trainer=TRAINER, retries=2).expand(name=["a", "b"])
    decorated()
    with TaskGroup("group", default_args={"retries": 4}):
        TrainJobOperator(task_id="plain", trainer=TRAINER)


def read_retries(dag):
    """Return each task's retries for the scheduler and a worker, and if they are a default."""
    scheduled = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    found = {}
    for each in dag.tasks:
        on_worker = each.unmap({"name": "a"}) if each.is_mapped else each
        retries = (scheduled.get_task(each.task_id).retries, on_worker.retries, on_worker._has_default_retries)
        found[each.task_id] = retries
    return found


def test_the_dag_processor_can_send_a_dag_without_stated_retries():
    """It sends the serialized DAG to its supervisor with msgpack, which does not know subclasses of int."""
    from airflow.sdk.execution_time.comms import _new_encoder

    with DAG("default", schedule=None) as dag:
        add_tasks()
    assert _new_encoder().encode(DagSerialization.serialize_dag(dag))


def test_a_task_has_two_retries_where_nobody_states_another_number():
    with DAG("default", schedule=None) as dag:
        add_tasks()
    assert read_retries(dag) == {
        "plain": (2, 2, True),
        "none": (0, 0, False),
        "same": (2, 2, False),
        "own": (5, 5, False),
        # Airflow 3.1 and 3.2 do not read the operator's default.
        "mapped": (2, 2, True) if AIRFLOW_VERSION >= (3, 3) else (0, 0, False),
        "mapped_same": (2, 2, False),
        "decorated": (2, 2, True),
        "group.plain": (4, 4, False),
    }


def test_the_default_args_of_a_dag_count_as_stated():
    with DAG("stated", schedule=None, default_args={"retries": 3}) as dag:
        add_tasks()
    found = read_retries(dag)
    assert {found[name] for name in ("plain", "mapped", "decorated")} == {(3, 3, False)}


@pytest.mark.parametrize("number", ["0", "4"])
def test_a_configured_number_counts_as_stated(number):
    program = (
        "from trainjob_airflow.default_retries import DEFAULT_RETRIES as found; print(type(found).__name__, found)"
    )
    environment = {"AIRFLOW__CORE__DEFAULT_TASK_RETRIES": number}
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, text=True, capture_output=True
    )
    assert done.stdout.splitlines()[-1:] == [f"int {number}"], done.stderr


def raise_failure(category):
    Outcome(job="j", namespace="n", uid="u", phase=Phase.FAILED, category=category).raise_for_failure()


@pytest.mark.parametrize(
    ("category", "is_retried"),
    [
        (Category.APPLICATION, False),
        (Category.OUT_OF_MEMORY, False),
        (Category.STORAGE_FULL, False),
        (Category.DEADLINE, False),
        (Category.INFRASTRUCTURE, True),
        (Category.DELETED, True),
        (Category.UNKNOWN, True),
    ],
)
def test_the_default_retries_are_for_failures_that_another_try_can_help(category, is_retried):
    with pytest.raises(Exception) as caught, fail_without_retry(has_default_retries=True):
        raise_failure(category)
    assert isinstance(caught.value, AirflowFailException) != is_retried
    with pytest.raises(Exception) as caught, fail_without_retry(has_default_retries=False):
        raise_failure(category)
    assert not isinstance(caught.value, AirflowFailException)


@pytest.mark.parametrize(("stated", "error"), [({}, AirflowFailException), ({"retries": 2}, CommandFailed)])
def test_the_rule_holds_on_the_worker(monkeypatch, stated, error):
    operator = TrainJobOperator(task_id="train", trainer=TRAINER, **stated)
    monkeypatch.setattr(operator, "_run_attempts", lambda _: raise_failure(Category.APPLICATION))
    ti = SimpleNamespace(dag_id="d", task_id="train", map_index=-1, xcom_push=lambda *_: None)
    with pytest.raises(error):
        operator.execute({"ti": ti})


@pytest.mark.parametrize("error", [ClusterUnreachable("away"), WaitTimeout("too long"), ImportError("no module")])
def test_other_errors_are_retried_as_ever(error):
    with pytest.raises(type(error)), fail_without_retry(has_default_retries=True):
        raise error


def test_the_default_is_a_false_number():
    assert isinstance(DEFAULT_RETRIES, DefaultRetries)
    assert (DEFAULT_RETRIES + 0, bool(DEFAULT_RETRIES)) == (2, False)
