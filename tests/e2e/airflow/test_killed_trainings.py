"""A DAG that fetches, trains with SFT and DPO in LLaMA-Factory, and exports, with a SIGKILL in both trainings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.dag_examples import ExampleRuns, laptop_with_tickets
from tests.support.interrupted_trainings import killing_environment
from tests.support.killed_chains import check_exports, check_resumed_trainings, kill_variables

__all__ = ["killing_environment"]

DAGS = Path(__file__).resolve().parent / "dags_with_kills"
pytestmark = [
    pytest.mark.llamafactory,
    pytest.mark.timeout(600, func_only=True),
    pytest.mark.usefixtures("torchrun_lock"),
]


def test_retries_of_killed_trainings_resume(tmp_path, killing_environment):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    variables = {
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "FOLDER": str(workspace),
        "POD_ENV": json.dumps(kill_variables(killing_environment)),
    }
    with laptop_with_tickets(tmp_path) as environment:
        runs = ExampleRuns({**environment, **variables}, tmp_path / "airflow.log", DAGS)
        try:
            done = runs.run("llamafactory_chain")
        finally:
            runs.stop()
    log = runs.read_log()
    assert done["state"] == "success", log[-6000:]
    for task in ("sft", "dpo"):
        assert done["tasks"][task] == ["success"]
        assert done["returned"][task][0]["progress"]["step"] == 12
    check_resumed_trainings(log)
    check_exports(workspace)
