"""Tests of all DAGs in README.md, docs/ and examples/: trainings have retries, and steps can share a disk."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from tests.support.code_blocks import ROOT, python_blocks

EXAMPLES = [ROOT / "examples" / "airflow", ROOT / "examples" / "airflow_3_3"]
SOURCES = [*python_blocks("airflow"), *EXAMPLES]
RULE = "give the Workspace access_mode='ReadWriteMany', or order the steps: dataset >> model >> tune >> export"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem if isinstance(source, Path) else str(source))
def test_a_documented_dag_starts_on_several_nodes_and_has_retries(airflow, source, tmp_path):
    """Two pods on two nodes cannot attach one ReadWriteOnce volume, and only a retry adopts a running TrainJob."""
    from tests.support.airflow_versions import load_dags

    if not isinstance(source, Path):
        (tmp_path / "block.py").write_text(source.text, "utf-8")
    # test_pages.py and test_examples.py check that all files load on the Airflow versions that have what they need.
    dags = load_dags(source if isinstance(source, Path) else tmp_path).dags.values()
    assert [problem for dag in dags for problem in find_problems(dag)] == []


def find_problems(dag):
    """Return one line for each training without retries, and for parallel steps on a disk."""
    from trainjob_airflow import FineTuneOperator, TrainJobOperator
    from trainjob_airflow.operators.base import StepOperator

    steps = [task for task in dag.tasks if issubclass(operator_class(task), StepOperator)]
    found = [
        f"{dag.dag_id}: {step.task_id} has no retries"
        for step in steps
        if issubclass(operator_class(step), (FineTuneOperator, TrainJobOperator)) and not has_retries(step)
    ]
    on_one_node = [step for step in steps if volume_on_one_node(step) is not None]
    parallel = [f"the tasks of {step.task_id}" for step in on_one_node if step.is_mapped] + [
        f"{first.task_id} and {second.task_id}"
        for first, second in combinations(on_one_node, 2)
        if volume_on_one_node(first) == volume_on_one_node(second) and not is_ordered(first, second)
    ]
    return [*found, *(f"{dag.dag_id}: {steps} run at the same time: {RULE}" for steps in parallel)]


def operator_class(task):
    """Return the class of a task's operator, also of a mapped task."""
    return task.operator_class if task.is_mapped else type(task)


def has_retries(step):
    """Return whether a try follows a failed one.

    The default retries of an operator are a false number.
    """
    from tests.support.airflow_versions import AIRFLOW_VERSION

    # Airflow 3.1 and 3.2 do not read the operator's default for mapped tasks; docs/how-to/sweeps.md says so.
    return int(step.retries) > 0 or (step.is_mapped and AIRFLOW_VERSION < (3, 3))


def volume_on_one_node(step):
    """Return the Workspace or the name of the claim, if only pods of one node can use it."""
    workspace = step.partial_kwargs.get("workspace") if step.is_mapped else step.workspace
    return None if getattr(workspace, "access_mode", "") == "ReadWriteMany" else workspace


def is_ordered(first, second):
    """Return whether one of two tasks runs after the other."""
    return bool({first.task_id, second.task_id} & (first.get_flat_relative_ids() | second.get_flat_relative_ids()))
