"""Tests of values in Airflow's database that later versions must read. `tests/unit/recorded` has those of the core."""

from __future__ import annotations

import pytest
from airflow.sdk.module_loading import import_string

from trainjob_airflow import TrainJobOperator, TrainJobSensor, usage_records
from trainjob_airflow.links.trainjob import TrainJobLink, TrainJobLogsLink, TrainJobMetricsLink, TrainJobPodsLink
from trainjob_airflow.task_progress import PROGRESS_KEY

REFERENCE = {"name": "a", "namespace": "b", "uid": "c", "attempt": 1, "adopted": False, "adopted_at": ""}
TRIGGERS = {
    "trainjob_airflow.triggers.trainjob.TrainJobTrigger": {
        "reference": REFERENCE,
        "limits": {"max_restarts": 0, "on_timeout": "delete", "on_failure": "delete"},
        "deadline": 1.0,
        "kubernetes_conn_id": "kubernetes_default",
        "on_kill_action": "delete",
    },
    "trainjob_airflow.triggers.end.TrainJobEndTrigger": {
        "namespace": "a",
        "name": "",
        "run_key": {"workflow": "a", "task": "b", "run": "c"},
        "deadline": None,
        "kubernetes_conn_id": None,
    },
    "trainjob_airflow.triggers.event.TrainJobEventTrigger": {
        "namespace": "a",
        "label_selector": "a=b",
        "name_prefix": "c",
        "kubernetes_conn_id": None,
    },
}


@pytest.mark.parametrize("path", TRIGGERS)
def test_a_stored_trigger_is_loaded_with_its_arguments(path):
    stored = TRIGGERS[path]
    new_path, arguments = import_string(path)(**stored).serialize()
    assert new_path == path
    assert {name: arguments[name] for name in stored} == stored


@pytest.mark.parametrize("operator", [TrainJobOperator, TrainJobSensor])
def test_the_stored_method_that_resumes_a_task_exists(operator):
    assert callable(operator.execute_complete)


def test_the_xcom_keys_are_unchanged():
    keys = [link().xcom_key for link in (TrainJobLink, TrainJobPodsLink, TrainJobLogsLink, TrainJobMetricsLink)]
    names = [f"_link_TrainJob{kind}Link" for kind in ("", "Pods", "Logs", "Metrics")]
    assert [PROGRESS_KEY, *keys] == ["progress", *names]
    assert (usage_records.XCOM_KEY, usage_records.STATE_STORE_KEY) == ("usage", "trainjob_usage")
