"""Tests of the arguments that say where a task finds its TrainJob: wrong ones are refused when the DAG is parsed."""

from __future__ import annotations

import re

import pytest
from airflow.sdk import DAG, task

from trainjob.errors import InvalidSpec
from trainjob_airflow import (
    ResumeTrainJobOperator,
    SuspendTrainJobOperator,
    TrainJobOperator,
    TrainJobSensor,
    TrainJobSweepOperator,
    Workspace,
)

TASKS = {
    "operator": lambda **given: TrainJobOperator(task_id="t", trainer={"image": "i", "command": ["c"]}, **given),
    "sensor": lambda **given: TrainJobSensor(task_id="t", **{"name": "tune", **given}),
    "suspend": lambda **given: SuspendTrainJobOperator(task_id="t", **{"name": "tune", **given}),
    "resume": lambda **given: ResumeTrainJobOperator(task_id="t", **{"name": "tune", **given}),
    "sweep": lambda **given: TrainJobSweepOperator(task_id="t", **given),
    "workspace": lambda **given: Workspace("1Gi", **given),
}
WRONG = [
    {"kubernetes_conn_id": 5},
    {"namespace": "../ml"},
    {"namespace": "A b"},
    {"namespace": 7},
    {"namespace": "a" * 254},
]
WRONG_FIELDS = [{"cluster_context": 3}, {"in_cluster": "yes"}]
WRONG_NAMES = [{"name": "../x"}, {"name": "a/b"}, {"name": "A"}]


CASES = [
    *((kind, given) for kind in TASKS for given in WRONG),
    *((kind, given) for kind in TASKS if kind != "workspace" for given in WRONG_FIELDS),
    *((kind, given) for kind in ("sensor", "suspend", "resume") for given in WRONG_NAMES),
]


@pytest.mark.parametrize(("kind", "given"), CASES, ids=str)
def test_a_wrong_argument_is_refused_by_name(kind, given):
    [(field, value)] = given.items()
    with pytest.raises(InvalidSpec, match=f"^{field} cannot be {re.escape(repr(value))}"):
        TASKS[kind](**given)


@pytest.mark.parametrize("kind", TASKS)
def test_templates_and_results_are_checked_when_they_are_known(kind):
    with DAG("d"):
        result = task(lambda: "ml", task_id="find")()
        TASKS[kind](namespace="{{ params.namespace }}", kubernetes_conn_id=None)
    with DAG("d"):
        result = task(lambda: "ml", task_id="find")()
        TASKS[kind](namespace=result)
