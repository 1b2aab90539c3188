"""Examples with the real TorchTune: the chain of the demo, and a sweep with a loop and collected results."""

from __future__ import annotations

import re

import pytest

pytestmark = [pytest.mark.timeout(600, func_only=True), pytest.mark.torchtune, pytest.mark.usefixtures("torchrun_lock")]

SECONDS = 500.0


@pytest.mark.parametrize("code", ["image", "configmap"])
def test_the_demo_chain_exports_a_model(start_example, code):
    """Each step has its TrainJob, and the store has the loss chart of the training."""
    run = start_example("tickets_llm", code=code)
    assert run.wait_until_ended(SECONDS)["status"]["phase"] == "Succeeded"
    tasks = sorted(job["metadata"]["labels"]["trainjob.dev/task"] for job in run.list_trainjobs())
    assert tasks == ["export-model", "fine-tune", "initialize-dataset", "initialize-model"]
    assert {conditions(job) for job in run.list_trainjobs()} == {("Complete",)}
    names = {name.rpartition("/")[2] for name in run.stored_objects()}
    assert "loss_curve" in names, sorted(run.stored_objects())


def test_a_sweep_collects_the_metrics_of_its_loop(start_example):
    run = start_example("sweep")
    assert run.wait_until_ended(SECONDS)["status"]["phase"] == "Succeeded"
    assert len(run.list_trainjobs()) == 5
    [losses] = set(re.findall(r"losses: \[([\d.]+), ([\d.]+)\]", run.read_step_logs()))
    assert float(losses[0]) != float(losses[1])


def conditions(job) -> tuple[str, ...]:
    return tuple(one["type"] for one in job["status"]["conditions"] if one["status"] == "True")
