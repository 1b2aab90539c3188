"""Values of the provider that outlive a release, in Airflow's database. `tests/unit/recorded` has the core's."""

from __future__ import annotations

import pytest
from airflow.sdk.module_loading import import_string

from trainjob_airflow import TrainJobOperator, TrainJobSensor
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
def test_a_trigger_that_was_stored_is_found_and_takes_its_arguments(path):
    stored = TRIGGERS[path]
    now, arguments = import_string(path)(**stored).serialize()
    assert now == path
    assert {name: arguments[name] for name in stored} == stored


@pytest.mark.parametrize("operator", [TrainJobOperator, TrainJobSensor])
def test_a_deferred_task_is_resumed_by_the_method_that_was_stored(operator):
    assert callable(operator.execute_complete)


def test_xcoms_keep_their_keys():
    keys = [one().xcom_key for one in (TrainJobLink, TrainJobPodsLink, TrainJobLogsLink, TrainJobMetricsLink)]
    names = [f"_link_TrainJob{kind}Link" for kind in ("", "Pods", "Logs", "Metrics")]
    assert [PROGRESS_KEY, *keys] == ["progress", *names]
