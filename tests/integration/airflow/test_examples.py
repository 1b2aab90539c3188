"""Tests that each Airflow example loads, has a description and states the retries of its trainings.

tests/e2e/airflow/test_example_runs.py runs them, except `unsloth_sft`, which needs a GPU. The sweep has the default
retries, which do not repeat a try that diverges.
"""

from __future__ import annotations

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "airflow"
DAGS = {
    "announce_model",
    "boosted_trees",
    "container",
    "distributed_function",
    "housekeeping",
    "gang",
    "jax_on_nodes",
    "llamafactory_preferences",
    "mpi_on_nodes",
    "preference_tuning",
    "nightly_fine_tune",
    "nightly_promotion",
    "object_store",
    "project_code",
    "queued",
    "register_models",
    "runtimes",
    "registered",
    "sweep",
    "tickets_llm",
    "tracked",
    "trl_preferences",
    "trl_rewards",
    "trl_sft",
    "trl_two_nodes",
    "unsloth_sft",
}


def test_all_examples_load_and_are_documented(airflow):
    from tests.support.airflow_versions import load_dags

    bag = load_dags(EXAMPLES)
    assert bag.import_errors == {}
    assert {name: bool(dag.doc_md) for name, dag in bag.dags.items()} == dict.fromkeys(DAGS, True)
    assert {name for name, dag in bag.dags.items() for each in dag.tasks if has_unstated_retries(each)} == {"sweep"}


def test_the_examples_of_schedules_load_and_are_documented(airflow):
    """Airflow 3.3 has what they need; test_schedules.py and test_approval.py in tests/e2e/airflow run them."""
    from tests.support.airflow_versions import load_dags

    pytest.importorskip("airflow.sdk.definitions.partition_mappers", reason="partitions are new in Airflow 3.3")
    bag = load_dags(EXAMPLES.parent / "airflow_3_3")
    assert bag.import_errors == {}
    assert bag.dags.keys() == {"approval", "collect_tickets", "intervals", "train_on_a_day"}
    assert all(dag.doc_md for dag in bag.dags.values())


def has_unstated_retries(task):
    """Return whether nobody states the retries of a task with a TrainJob."""
    from trainjob_airflow.default_retries import DefaultRetries
    from trainjob_airflow.operators.base import StepOperator

    if not issubclass(getattr(task, "operator_class", type(task)), StepOperator):
        return False
    return isinstance(task.retries, DefaultRetries) or task.retries == 0 or getattr(task, "_has_default_retries", False)
