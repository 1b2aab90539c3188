"""Tests of real evaluations with the component `evaluate_model`, `kfp.local` and the laptop cluster."""

from __future__ import annotations

import ast
import re

import pytest

from tests.integration.evaluation.conftest import trained, workspace
from tests.integration.kfp.pipeline_runner import PipelineRunner
from tests.support.training_fixtures import environments, hub
from trainjob_local import LocalCluster

__all__ = ["hub", "trained", "workspace"]
pytestmark = [pytest.mark.slow, pytest.mark.lm_eval]


@pytest.fixture(scope="module")
def laptop_with_harness(tmp_path_factory):
    with LocalCluster(tmp_path_factory.mktemp("cluster"), environments=environments("lm_eval")) as started:
        yield started


@pytest.mark.parametrize("model", ["better", "worse"])
def test_only_a_better_model_is_followed_by_the_next_step(laptop_with_harness, workspace, tmp_path, unique, model):
    run, champion = PipelineRunner(laptop_with_harness, tmp_path, unique), {"better": "worse", "worse": "better"}[model]
    code, log = run("compared", workspace=workspace, model=model, champion=champion)
    assert code == 0, log
    assert ("promoted" in log) == (model == "better"), log
    [metadata] = re.findall(r"metadata=(\{[^}]*'champion_tickets_choice_acc'[^}]*\})", log)
    found = ast.literal_eval(metadata)
    assert (found["difference_tickets_choice_acc"] > 0) == (model == "better")
    assert found["tickets_choice_acc"] - found["champion_tickets_choice_acc"] == pytest.approx(
        found["difference_tickets_choice_acc"]
    )
    [page] = tmp_path.rglob("summary")
    verdict = "All gates passed" if model == "better" else "1 of 1 gates failed"
    assert page.read_text().startswith(f"**{verdict}.**\n\n| Metric | New model | Champion | Better by |")
