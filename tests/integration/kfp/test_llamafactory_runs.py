"""A pipeline that fetches, trains with SFT and DPO in LLaMA-Factory, and exports, with a SIGKILL in both trainings."""

from __future__ import annotations

import json

import pytest

from tests.integration.kfp.pipeline_runner import PipelineRunner
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


def test_further_attempts_of_killed_trainings_resume(tmp_path, unique, killing_environment):
    workspace = tmp_path / "tickets"
    workspace.mkdir()
    variables = {f"{method}_env": json.dumps(env) for method, env in kill_variables(killing_environment).items()}
    with laptop_with_demo_hub(tmp_path) as laptop:
        runner = PipelineRunner(laptop, tmp_path, unique)
        code, log = runner("llamafactory_chain", workspace=workspace, **variables)
    assert code == 0, log[-6000:]
    check_resumed_trainings(log)
    check_exports(workspace)
