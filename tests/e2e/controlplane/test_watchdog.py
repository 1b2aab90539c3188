"""Trainings with gloo in which one rank fails: the watchdog names rank, step and place."""

from __future__ import annotations

import re

import pytest

from tests.support.gloo_faults import CATEGORIES, describe_fault, train
from trainjob import CustomTrainer, RunKey, TrainJob, Watchdog, submit, wait

pytestmark = [pytest.mark.timeout(300), pytest.mark.torchtune, pytest.mark.usefixtures("torchrun_lock")]


@pytest.mark.parametrize("per_node", [1, 2])
@pytest.mark.parametrize("fault", CATEGORIES)
def test_the_rank_that_fails_is_named(cluster, unique, fault, per_node):
    trainer = CustomTrainer(func=train, func_args={"fault": fault}, num_nodes=2, num_proc_per_node=per_node)
    job = TrainJob(trainer=trainer, watchdog=Watchdog(silence="5s", action="fail"))
    outcome = wait(cluster, submit(cluster, job, RunKey("test", "watchdog", unique, "run-1")))
    assert outcome.category is CATEGORIES[fault], outcome.explain()
    assert re.search(describe_fault(fault, 2 * per_node), outcome.explain()), outcome.explain()
