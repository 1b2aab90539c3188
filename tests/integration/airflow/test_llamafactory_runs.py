"""A DAG that fetches, trains with SFT and DPO in LLaMA-Factory, and exports, with a SIGKILL in both trainings."""

from __future__ import annotations

import json

import pytest

from tests.integration.airflow.airflow_runs import run_dag
from tests.support.demo_chain import laptop_with_demo_hub
from tests.support.interrupted_trainings import killing_environment
from tests.support.killed_chains import check_exports, check_resumed_trainings, kill_variables

__all__ = ["killing_environment"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.llamafactory,
    pytest.mark.timeout(600, func_only=True),
    pytest.mark.usefixtures("torchrun_lock"),
]


def test_retries_of_killed_trainings_resume(airflow, tmp_path, killing_environment):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with laptop_with_demo_hub(tmp_path) as laptop:
        extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
        printed, tasks, state = run_dag(
            airflow,
            "llamafactory_chain",
            AIRFLOW_CONN_KUBERNETES_DEFAULT=json.dumps({"conn_type": "kubernetes", "extra": extra}),
            FOLDER=str(workspace),
            POD_ENV=json.dumps(kill_variables(killing_environment)),
        )
    once = dict.fromkeys(("dataset", "model", "merged", "export"), ("success", 1))
    assert tasks == {**once, "sft": ("success", 2), "dpo": ("success", 2)}, printed[-6000:]
    assert state == "success"
    check_resumed_trainings(printed)
    check_exports(workspace)
