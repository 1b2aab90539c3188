"""A training that is killed or terminated resumes in its next attempt, and ends with the same weights."""

from __future__ import annotations

import filecmp
import json
import re
import shutil
import time

import pytest

from tests.integration.sentence_transformers.tiny_config import tiny_config
from tests.support.copied_trainings import URI, copying_environment, list_copies, store, to_store
from tests.support.interrupted_trainings import (
    assert_same_weights,
    check_kills,
    drain_training,
    killing_environment,
    resumed_steps,
    saved_step,
)

__all__ = ["copying_environment", "drain_training", "killing_environment", "store", "to_store"]

pytestmark = [pytest.mark.sentence_transformers, pytest.mark.slow, pytest.mark.timeout(900, func_only=True)]

# Where a training is killed -> the step from which the next attempt resumes; 0 means from the beginning. An epoch has
# six steps.
KILLS = {
    "checkpoint-4/modules.json": 0,
    "checkpoint-8/2_Dense/config.json": 4,
    "checkpoint-8/trainjob_complete.new": 4,
    "checkpoint-12/trainer_state.json": 8,
    "OUTPUT/2_Dense/config.json": 12,
}
SAVED = {"max_steps": 12, "save_strategy": "steps", "save_steps": 4, "lr_scheduler_type": "constant"}


@pytest.mark.parametrize("sampler", ["batch_sampler", "no_duplicates"])
def test_an_attempt_after_a_kill_ends_with_the_weights_of_an_unbroken_training(
    run_training, workspace, encoders, killing_environment, sampler
):
    shutil.copytree(encoders / "dense", workspace / "model")
    config = tiny_config(**SAVED, arguments={"batch_sampler": sampler})
    kills = KILLS if sampler == "batch_sampler" else {"checkpoint-12/trainer_state.json": 8}

    def run(name, config, **fields):
        return run_training(name, config, dataset_path="pairs", **fields)

    check_kills(run, workspace, killing_environment, config, kills)
    outputs = workspace / "output"
    for number in range(len(kills)):
        folders = outputs / "unbroken", outputs / f"broken-{number}"
        assert filecmp.cmp(*(folder / "2_Dense/model.safetensors" for folder in folders), shallow=False)
        assert not list(folders[1].glob("checkpoint-*"))


def test_a_drained_training_saves_and_its_replacement_continues(drain_training, run_training, workspace, encoders):
    shutil.copytree(encoders / "modules", workspace / "model")
    config = tiny_config(epochs=10, save_strategy="epoch", lr_scheduler_type="constant")
    outcome, lines = drain_training(config, 0, dataset_path="pairs")
    outcome.raise_for_failure()
    assert resumed_steps(lines) == [saved_step(lines)]
    outcome, _ = run_training("unbroken", config, dataset_path="pairs")
    outcome.raise_for_failure()
    assert_same_weights(workspace / "output/run", workspace / "output/unbroken")


def test_another_training_starts_from_a_checkpoint_with_its_own_learning_rate(run_training, workspace, encoders):
    shutil.copytree(encoders / "modules", workspace / "model")
    arguments = {"logging_steps": 1, "save_total_limit": 9}
    outcome, _ = run_training("first", tiny_config(**SAVED, arguments=arguments), dataset_path="pairs")
    outcome.raise_for_failure()
    changed = tiny_config(**SAVED, learning_rate=1e-3, arguments=arguments)
    start = {"folder": "output/first", "step": 4}
    outcome, lines = run_training("next", changed, dataset_path="pairs", resume_from=start)
    outcome.raise_for_failure()
    [line] = [line for line in lines if line.startswith("starts from ")]
    assert line.startswith("starts from step 4 of run first (")
    assert "config.learning_rate 0.001 instead of 0.003" in line
    rates = {found[1] for line in lines if (found := re.search("'learning_rate': '([^']+)'", line))}
    steps = [int(found[1]) for line in lines if (found := re.match("{'loss'.*'step': ([0-9]+),", line))]
    assert (rates, steps) == ({"0.001"}, list(range(5, 13)))
    record = json.loads((workspace / "output/next/trainjob_run.json").read_text())
    assert record["parent"]["step"] == 4


def test_a_training_whose_workspace_is_lost_continues_from_the_copy(
    run_training, workspace, encoders, store, to_store, copying_environment, tmp_path
):
    shutil.copytree(encoders / "dense", workspace / "model")
    shutil.copytree(workspace, tmp_path / "inputs")
    config = tiny_config(**SAVED)
    outcome, _ = run_training("unbroken", config, dataset_path="pairs")
    outcome.raise_for_failure()
    shutil.copytree(workspace / "output/unbroken", tmp_path / "unbroken")

    fields = {"dataset_path": "pairs", **to_store(store.url, store.environment)}
    killing = {**copying_environment, "KILL_AT": "checkpoint-12/trainer_state.json"}
    outcome, lines = run_training("run", config, env=killing, **fields)
    assert not outcome.succeeded, lines[-20:]
    deadline = time.monotonic() + 60
    while list_copies(store) != [8] and time.monotonic() < deadline:  # the process that copies ends later
        time.sleep(0.5)
    shutil.rmtree(workspace)
    shutil.copytree(tmp_path / "inputs", workspace, copy_function=shutil.copyfile)

    outcome, lines = run_training("run", config, env=copying_environment, **fields)
    outcome.raise_for_failure()
    assert resumed_steps(lines) == [8]
    assert [line for line in lines if line.endswith(f"is complete, and was fetched from {URI}")]
    assert_same_weights(tmp_path / "unbroken", workspace / "output/run")
    assert store.read_prefix("models/checkpoints") == {}
