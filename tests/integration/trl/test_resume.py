"""A training that is killed or terminated resumes in its next attempt, and ends with the same weights."""

from __future__ import annotations

import json
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.integration.trl.tiny_trl import tiny_config
from tests.support.changed_trainings import check_changes
from tests.support.interrupted_trainings import (
    assert_same_weights,
    check_kills,
    drain_training,
    killing_environment,
    resumed_steps,
    saved_step,
)
from tests.support.training_fixtures import ROOT
from trainjob import TRLLoraConfig, wait
from trainjob.lifecycle import Listener
from trainjob.status import Category
from trainjob_local.kubelet.kubelet import FAULT_ANNOTATION

__all__ = ["drain_training", "killing_environment"]

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

STEPS, SAVE_STEPS = 12, 4
# Where a training is killed -> the step from which the next attempt resumes; 0 means from the beginning.
KILLS = {
    "trainjob_run.json.new": 0,
    "checkpoint-4/config.json": 0,
    "checkpoint-8/trainer_state.json": 4,
    "checkpoint-8/trainjob_complete.new": 4,
    "checkpoint-12/generation_config.json": 8,
    "OUTPUT/config.json": 12,
}
LORA_KILLS = {"checkpoint-8/adapter_config.json": 4, "merged.new/config.json": None}
LORA = TRLLoraConfig(lora_rank=4, lora_alpha=8, lora_dropout=0.0, target_modules=("q_proj", "v_proj"))


def config_for(*, lora: bool, **fields):
    return tiny_config(
        **{"max_steps": STEPS, "save_strategy": "steps", "save_steps": SAVE_STEPS, **fields},
        # With the default, the learning rate of a step after the last one would be 0.
        lr_scheduler_type="constant",
        peft_config=LORA if lora else None,
    )


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_an_attempt_after_a_kill_ends_with_the_weights_of_an_unbroken_training(
    run_training, workspace, killing_environment, lora, evidence
):
    check_kills(run_training, workspace, killing_environment, config_for(lora=lora), LORA_KILLS if lora else KILLS)
    evidence("features", row="resume", cell="real run")


MEMORY = {"resources_per_node": {"memory": "3Gi"}}
# For each attempt: where it is killed, what changes, and from where it continues. A waiter deletes a TrainJob that
# failed, so the next one is attempt 1, too.
ATTEMPTS = (
    ("checkpoint-8/trainer_state.json", {}, ""),
    ("checkpoint-10/config.json", {**MEMORY, "save_steps": 2}, "continues from step 4 of attempt 1: "),
    ("checkpoint-12/config.json", {"gradient_checkpointing": True}, "continues from step 8 of attempt 1: "),
    ("", {"arguments": {"save_total_limit": 4}}, "continues from step 10 of attempt 1: "),
)


def test_a_training_continues_after_changes_that_do_not_decide_its_weights(
    run_training, workspace, killing_environment
):
    build = partial(config_for, lora=False)
    check_changes(run_training, workspace, killing_environment, build, ATTEMPTS, image="trl-next", model="renamed")


COMPARISON = """
import sys
from safetensors.torch import load_file
one, other = map(load_file, sys.argv[1:])
print(max(float((one[name] - other[name]).abs().max()) for name in one), one.keys() == other.keys())
"""


def measure_difference(outputs, *names):
    """Return the largest difference of a weight of two trainings."""
    files = [str(outputs / name / "model.safetensors") for name in names]
    python = ROOT / ".venv/trl/bin/python"
    done = subprocess.run([python, "-c", COMPARISON, *files], capture_output=True, text=True, check=True)
    difference, has_same_names = done.stdout.split()
    assert has_same_names == "True"
    return float(difference)


@pytest.mark.parametrize(
    "division",
    [
        {"batch_size": 4, "gradient_accumulation_steps": 2},
        {"batch_size": 4, "num_proc_per_node": 2},
        {"batch_size": 2, "gradient_accumulation_steps": 2, "num_proc_per_node": 2},
    ],
    ids=lambda division: " ".join(map(str, division.values())),
)
def test_a_training_continues_with_another_division_of_its_batches(
    run_training, workspace, killing_environment, division
):
    """The samples of each step are the same, so the weights differ only by the order of the sums in fp32."""
    outcome, _ = run_training("unbroken", config_for(lora=False))
    outcome.raise_for_failure()
    environment = {**killing_environment, "KILL_AT": "checkpoint-8/trainer_state.json"}
    outcome, _ = run_training("broken", config_for(lora=False), env=environment)
    assert not outcome.succeeded
    outcome, lines = run_training("broken", config_for(lora=False, **division), env=environment)
    outcome.raise_for_failure()
    assert resumed_steps(lines) == [4]
    # AdamW moves a weight by up to 3e-3 in a step, whatever the size of its gradient.
    assert measure_difference(workspace / "output", "unbroken", "broken") < 1e-4


def test_a_training_continues_on_fewer_and_on_more_nodes(run_training, workspace, killing_environment):
    """Each step has the same 12 samples on 4, 2 and 3 nodes, as attempts of a request with a range of nodes have."""
    unbroken, broken = config_for(lora=False, batch_size=12), partial(config_for, lora=False, batch_size=1)
    outcome, _ = run_training("unbroken", unbroken)
    outcome.raise_for_failure()
    sizes = ((4, "checkpoint-8/trainer_state.json"), (2, "checkpoint-12/trainer_state.json"), (3, "nothing"))
    lines, killed = [], Path(killing_environment["KILLED"])
    for nodes, kill_at in sizes:
        config = broken(num_nodes=nodes, gradient_accumulation_steps=12 // nodes)
        variables = {**killing_environment, "KILL_AT": kill_at}
        killed.unlink(missing_ok=True)
        outcome, printed = run_training("broken", config, env=variables)
        assert (outcome.succeeded, killed.exists()) == (kill_at == "nothing", kill_at != "nothing"), printed[-20:]
        lines += printed
    assert resumed_steps(lines) == [4, 8]
    assert [line for line in lines if line.startswith("trains with ")] == [
        "trains with 4 processes on 4 nodes from step 0",
        "trains with 2 processes on 2 nodes from step 4",
        "trains with 3 processes on 3 nodes from step 8",
    ]
    record = json.loads((workspace / "output" / "broken" / "trainjob_run.json").read_text())
    assert [(each["step"], each["nodes"]) for each in record["attempts"]] == [(0, 4), (4, 2), (8, 3)]
    assert measure_difference(workspace / "output", "unbroken", "broken") < 1e-4


def test_another_training_starts_anew_and_after_undoing_the_change_the_first_one_continues(
    run_training, workspace, killing_environment
):
    killed = Path(killing_environment["KILLED"])

    def run(kill_at, **fields):
        config = config_for(lora=False, **fields)
        outcome, lines = run_training("run", config, env={**killing_environment, "KILL_AT": kill_at})
        killed.unlink(missing_ok=True)
        return outcome, [line for line in lines if line.startswith(("continues from ", "starts from the beginning"))]

    assert run("checkpoint-8/config.json")[1] == []
    _, [start] = run("checkpoint-8/trainer_state.json", learning_rate=1e-3)
    assert start.startswith("starts from the beginning, because config.learning_rate was 0.003 and is 0.001; ")
    outcome, [start] = run("nothing")
    outcome.raise_for_failure()
    assert start.startswith("continues from step 4 of attempt 1: ")
    outcome, _ = run_training("unbroken", config_for(lora=False))
    outcome.raise_for_failure()
    assert_same_weights(workspace / "output/unbroken", workspace / "output/run")
    outcome, [start] = run("nothing", learning_rate=1e-3)
    assert start.startswith("continues from step 4 of attempt 1: ")


def test_the_pod_that_replaces_a_drained_one_resumes(drain_training):
    outcome, lines = drain_training(tiny_config(epochs=4, batch_size=4, save_strategy="epoch"), 0)
    outcome.raise_for_failure()
    assert resumed_steps(lines) == [saved_step(lines)]
    assert 20 <= saved_step(lines) < 85  # before the first epoch ends, after which a checkpoint is saved anyway


@pytest.mark.usefixtures("torchrun_lock")
def test_all_nodes_save_if_one_is_drained(drain_training, run_training):
    """Only the second node's pod gets SIGTERM. Both nodes save at the same step and end; the next attempt resumes."""
    config = tiny_config(epochs=8, batch_size=4, save_strategy="epoch", num_nodes=2)
    outcome, lines = drain_training(config, 1)
    assert outcome.phase.value == "Failed"
    outcome, resumed = run_training("run", config)
    outcome.raise_for_failure()
    assert resumed_steps(resumed) == [saved_step(lines)]


@pytest.mark.usefixtures("torchrun_lock")
def test_a_lost_node_is_an_interruption_of_all(cluster, submit_training, run_training):
    """The other node ends with an error of its own, because it loses its peer; no process can save any more."""
    config = tiny_config(epochs=8, batch_size=4, save_strategy="steps", save_steps=10, num_nodes=2)
    reference = submit_training("run", config)
    has_begun = threading.Event()

    def follow(line):
        if "'step': 20," in line.text:
            has_begun.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, cluster, reference, listener=Listener(on_log=follow))
        assert has_begun.wait(120)
        [name] = [
            pod["metadata"]["name"]
            for pod in cluster.list_pods(reference.name, reference.namespace)
            if pod["metadata"]["name"].startswith(f"{reference.name}-node-0-1-")
        ]
        fault = {"metadata": {"annotations": {FAULT_ANNOTATION: "Evicted"}}}
        path = f"/api/v1/namespaces/{reference.namespace}/pods/{name}"
        cluster._http.request("PATCH", path, doing="evict a pod", body=fault)
        outcome = waiting.result(240)
    assert (outcome.category, outcome.rank) == (Category.INFRASTRUCTURE, 1)
    outcome, lines = run_training("run", config)
    outcome.raise_for_failure()
    [step] = resumed_steps(lines)
    assert step >= 10 and step % 10 == 0
