"""Trainings that hang on the laptop cluster: what the waiter learns from the watchdogs of their pods."""

from __future__ import annotations

import pytest

from tests.support.gloo_faults import train
from tests.support.polling import wait_until
from trainjob import CustomTrainer, CustomTrainerContainer, RunKey, TrainJob, Watchdog, cancel, submit, wait
from trainjob.errors import Diverged, Hung
from trainjob.inspection.description import describe
from trainjob.lifecycle import JobReference, Listener, ProgressLog
from trainjob.lifecycle.resubmission import plan_resubmission
from trainjob.status import Category
from trainjob.status.log_reasons import ProcessFailure

PRINT_STEPS = """
import time
for step in range(1, 4):
    print({"loss": 1 / step, "epoch": step / 10, "step": step, "max_steps": 10, "num_train_epochs": 1}, flush=True)
    time.sleep(0.1)
"""
HANG = "time.sleep(10_000)\n"


def run(cluster, unique, trainer, **watchdog):
    lines = []
    job = TrainJob(trainer=trainer, watchdog=Watchdog(silence="3s", **watchdog))
    reference = submit(cluster, job, RunKey("test", "watchdog", unique, "run-1"))
    return reference, wait(cluster, reference, listener=Listener(on_log=lambda line: lines.append(str(line)))), lines


def container(source):
    return CustomTrainerContainer(image="python:3.12", command=["python", "-c", source])


def test_a_container_that_prints_progress(cluster, unique):
    _, outcome, lines = run(cluster, unique, container(PRINT_STEPS + HANG), action="fail")
    assert (outcome.category, outcome.exit_code) == (Category.HUNG, 1)
    assert outcome.hang.startswith("node-0 (laptop) has made no step for ")
    assert " since step 3: it is in <module> (<string>:6)" in outcome.hang  # by py-spy of this environment
    assert outcome.explain().splitlines()[0].endswith(f"exit code 1: the training hung: {outcome.hang}")
    printed = outcome.hang.replace(" (laptop)", "")
    assert any(f"watchdog: failed: the training hung: {printed}" in line for line in lines)
    with pytest.raises(Hung, match="read the stacks above"):
        outcome.raise_for_failure()


def test_a_training_that_diverges(cluster, unique):
    source = PRINT_STEPS.replace("(1, 4)", "(1, 11)").replace("1 / step", "1.0 if step < 5 else float('nan')")
    reference, outcome, _ = run(cluster, unique, container(source + HANG), action="restart")
    assert outcome.category is Category.DIVERGED
    assert "the loss is not a finite number at step 9; the last finite one is 1 at step 4" in outcome.explain()
    assert plan_resubmission(reference, outcome, interruption_retries=3) is None
    with pytest.raises(Diverged, match="lower the learning rate"):
        outcome.raise_for_failure()


@pytest.mark.parametrize(("action", "is_repeated"), [("restart", True), ("fail", False)])
def test_another_attempt_follows_as_after_an_interruption(cluster, unique, action, is_repeated):
    reference, outcome, _ = run(cluster, unique, container(PRINT_STEPS + HANG), action=action)
    assert outcome.category is Category.HUNG
    planned = plan_resubmission(reference, outcome, interruption_retries=3)
    assert (planned is not None) == is_repeated
    if planned:
        assert planned.interruptions == 1
        assert "was ended by its watchdog (the training hung: node-0 (laptop) has made no step for " in planned.notice


def test_a_report_ends_nothing(cluster, unique):
    _, outcome, lines = run(cluster, unique, container(f"{PRINT_STEPS}time.sleep(8)\n{PRINT_STEPS}"))
    assert outcome.succeeded
    assert any("watchdog: node-0 has made no step for " in line for line in lines)


def test_the_steps_of_the_ranks_are_progress(cluster, unique):
    progress, lines = [], []
    log = ProgressLog(JobReference("watched", "default", ""), lines.append)
    job = TrainJob(trainer=container(f"{PRINT_STEPS}time.sleep(5)\n"), watchdog=Watchdog(silence="2s"))
    reference = submit(cluster, job, RunKey("test", "steps", unique, "run-1"))
    wait(cluster, reference, listener=Listener(on_log=log.log_line, on_progress=progress.append))
    assert str(progress[-1]).startswith("step 3/10 (30 %), epoch 1/1, loss 0.3333, active ")
    assert not any("trainjob steps: " in line for line in lines)


def test_a_description_has_the_steps_of_a_running_training(cluster, unique):
    job = TrainJob(trainer=container(f"{PRINT_STEPS}time.sleep(10_000)\n"), watchdog=Watchdog(silence="2s"))
    reference = submit(cluster, job, RunKey("test", "description", unique, "run-1"))

    def are_at_last_step():
        progress = describe(cluster, cluster.get_trainjob(reference.name, reference.namespace)).progress
        return progress and progress.ranks and progress.ranks.fastest_step == progress.step == 3

    wait_until(are_at_last_step)
    cancel(cluster, reference)


REPORT_OF_ALL_NODES = """
import json, os
rank = int(os.environ["JOB_COMPLETION_INDEX"])
state = {"rank": rank, "step": 5, "seconds": 3.8, "state": "running", "place": "f (x.py:1)"}
state |= {"collective": "all_reduce", "workers": []}
report = {"node": rank, "world_size": 2, "ranks": [state], "is_alarm": False, "action": "report"}
for _ in range(2):
    print("trainjob watchdog: " + json.dumps(report), flush=True)
"""


def test_a_hang_that_only_all_nodes_together_see_is_a_warning(cluster, unique):
    warnings = []
    trainer = CustomTrainerContainer(image="python:3.12", command=["python", "-c", REPORT_OF_ALL_NODES], num_nodes=2)
    reference = submit(cluster, TrainJob(trainer=trainer), RunKey("test", "warning", unique, "run-1"))
    wait(cluster, reference, listener=Listener(on_warning=warnings.append))
    assert warnings == ["the training hangs: no rank of 2 has made a step for 4 s: 2 ranks wait in all_reduce"]


# The launcher of node-1 does not notice the end of its rank before node-0 has failed.
LOSE_A_RANK = """
import os, subprocess, sys, time
from pathlib import Path
node, file = int(os.environ["JOB_COMPLETION_INDEX"]), Path("FILE")
if node:
    rank = "import os; from trainjob.heartbeats import report_step; report_step(41); os.kill(os.getpid(), 9)"
    lost = subprocess.Popen([sys.executable, "-c", rank], env={**os.environ, "RANK": "1"})
    os.waitid(os.P_PID, lost.pid, os.WEXITED | os.WNOWAIT)
    file.touch()
    time.sleep(10_000)
while not file.exists():
    time.sleep(0.01)
print("Root Cause (first observed failure):\\n[0]:\\n  time      : now\\n  host      : localhost")
print("  rank      : 0 (local_rank: 0)\\n  exitcode  : 1 (pid: 7)")
sys.exit(1)
"""


def test_a_killed_rank_is_named_although_its_launcher_has_not_reported_it(cluster, unique, tmp_path):
    source = LOSE_A_RANK.replace("FILE", str(tmp_path / "killed"))
    trainer = CustomTrainerContainer(image="python:3.12", command=["python", "-c", source], num_nodes=2)
    _, outcome, _ = run(cluster, unique, trainer)
    assert (outcome.rank, outcome.exit_code) == (0, 1)
    assert outcome.failed_process == ProcessFailure(1, -9, 41)
    assert outcome.category is Category.OUT_OF_MEMORY
    assert "rank 1, exit code -9: rank 1 was ended by SIGKILL after step 41, as Linux" in outcome.explain()


def test_a_warning_of_a_watchdog_is_one_of_the_outcome(cluster, unique):
    source = "print('watchdog: warning: node-0: the GPUs computed for 4 % of the last 5 min')"
    _, outcome, _ = run(cluster, unique, container(source))
    assert outcome.succeeded
    assert outcome.warnings == ("node-0: the GPUs computed for 4 % of the last 5 min",)


@pytest.mark.slow
@pytest.mark.torchtune
@pytest.mark.usefixtures("torchrun_lock")
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_rank_under_torchrun(cluster, unique, nodes):
    trainer = CustomTrainer(func=train, func_args={"fault": "lock"}, num_nodes=nodes, num_proc_per_node=2 // nodes)
    _, outcome, lines = run(cluster, unique, trainer, action="fail")
    assert outcome.category is Category.HUNG, outcome.explain()
    assert outcome.hang.startswith(f"rank 1 of 2 on node-{nodes - 1} (laptop) has made no step for ")
    assert " since step 5: it is in wait_for_lock (" in outcome.hang
    assert outcome.hang.endswith("; 1 rank waits in all_reduce")
    assert any("watchdog: rank 1: " in line and "in wait_for_lock" in line for line in lines)
