"""Trainings with gloo in which one rank fails: the watchdog names rank, step and place."""

from __future__ import annotations

import re

import pytest

from trainjob import CustomTrainer, RunKey, TrainJob, Watchdog, submit, wait
from trainjob.status import Category

pytestmark = [pytest.mark.timeout(300), pytest.mark.torchtune, pytest.mark.usefixtures("torchrun_lock")]


def train(fault):
    import functools
    import os
    import signal
    import threading
    import time

    import torch
    import torch.distributed as dist

    from trainjob.heartbeats import report_step

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, index):
            if fault == "loader" and index == 5 and is_last:
                time.sleep(10_000)
            return torch.ones(1)

    def wait_for_lock():
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    def sleep_for_ever():
        time.sleep(10_000)

    def send(number):
        os.kill(os.getpid(), number)

    faults = {
        "lock": wait_for_lock,
        "sleep": sleep_for_ever,
        "stop": functools.partial(send, signal.SIGSTOP),
        "kill": functools.partial(send, signal.SIGKILL),
    }
    dist.init_process_group("gloo")
    is_last = dist.get_rank() == dist.get_world_size() - 1
    for step, row in enumerate(torch.utils.data.DataLoader(Rows(), num_workers=1), 1):
        if is_last and step == 6 and fault in faults:
            faults[fault]()
        dist.all_reduce(row)
        report_step(step)
        if dist.get_rank() == 0:
            loss = float("nan") if fault == "nan" and step >= 5 else 1 / step
            print({"loss": loss, "learning_rate": 0.1, "epoch": step / 100, "step": step, "max_steps": 100}, flush=True)
        time.sleep(0.05)


def run(cluster, unique, fault, per_node):
    trainer = CustomTrainer(func=train, func_args={"fault": fault}, num_nodes=2, num_proc_per_node=per_node)
    job = TrainJob(trainer=trainer, watchdog=Watchdog(silence="5s", action="fail"))
    return wait(cluster, submit(cluster, job, RunKey("test", "watchdog", unique, "run-1")))


PLACES = {
    "lock": r"it is in wait_for_lock \(",
    "sleep": r"it is in sleep_for_ever \(",
    "loader": r"it is in DataLoader.__next__ \(worker: __getitem__ \(",
    "stop": r"its process is stopped by a signal \(SIGSTOP\)",
}


@pytest.mark.parametrize("per_node", [1, 2])
@pytest.mark.parametrize("fault", PLACES)
def test_the_rank_that_hangs_is_named(cluster, unique, fault, per_node):
    outcome, ranks = run(cluster, unique, fault, per_node), 2 * per_node
    assert outcome.category is Category.HUNG, outcome.explain()
    others = f"{ranks - 1} rank{'s wait' if ranks > 2 else ' waits'} in all_reduce"
    rank = rf"rank {ranks - 1} of {ranks} on node-1 \(\S+\)"
    expected = rf"{rank} has made no step for \d+ s since step 5: {PLACES[fault]}.*; {others}"
    assert re.fullmatch(expected, outcome.hang), outcome.hang


@pytest.mark.parametrize("per_node", [1, 2])
def test_the_rank_that_is_killed_is_named(cluster, unique, per_node):
    outcome = run(cluster, unique, "kill", per_node)
    found = outcome.failed_process.rank, outcome.failed_process.exit_code
    assert found == (2 * per_node - 1, -9), outcome.explain()
    assert outcome.category is Category.OUT_OF_MEMORY


@pytest.mark.parametrize("per_node", [1, 2])
def test_a_loss_that_is_not_finite_ends_the_training(cluster, unique, per_node):
    outcome = run(cluster, unique, "nan", per_node)
    assert outcome.category is Category.DIVERGED, outcome.explain()
    assert "the loss is not a finite number at step 9; the last finite one is 0.25 at step 4" in outcome.explain()
