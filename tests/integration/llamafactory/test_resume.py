"""A training with LLaMA-Factory that is killed or drained resumes, and ends with the same weights."""

from __future__ import annotations

from functools import partial

import pytest

from tests.integration.llamafactory.tiny_llamafactory import tiny_config
from tests.support.changed_trainings import check_changes
from tests.support.interrupted_trainings import (
    check_kills,
    drain_training,
    killing_environment,
    resumed_steps,
    saved_step,
)
from trainjob import LLaMAFactoryLoraConfig

__all__ = ["drain_training", "killing_environment"]

pytestmark = [pytest.mark.llamafactory, pytest.mark.slow, pytest.mark.timeout(900, func_only=True)]

STEPS, SAVE_STEPS = 12, 4
# Where a training is killed -> the step from which the next attempt resumes; 0 means from the beginning. In the second
# case, LLaMA-Factory itself would resume from the incomplete checkpoint-4.
KILLS = {
    "trainjob_run.json.new": 0,
    "checkpoint-4/trainer_state.json": 0,
    "checkpoint-8/trainjob_complete.new": 4,
    "OUTPUT/config.json": 12,
}
LORA_KILLS = {"checkpoint-8/adapter_config.json": 4, "merged.new/config.json": None}
LORA = LLaMAFactoryLoraConfig(lora_rank=4, lora_alpha=8, target_modules=("q_proj", "v_proj"))


# For each attempt: where it is killed, what changes, and from where it continues. A waiter deletes a TrainJob that
# failed, so the next one is attempt 1, too.
ATTEMPTS = (
    ("checkpoint-8/trainer_state.json", {}, ""),
    ("checkpoint-12/config.json", {"resources_per_node": {"memory": "3Gi"}}, "continues from step 4 of attempt 1: "),
    ("broken/config.json", {"arguments": {"plot_loss": False}}, "continues from step 8 of attempt 1: "),
    ("", {"save_steps": 2}, "continues from step 12 of attempt 1: "),
)


def config_for(*, lora: bool, **fields):
    return tiny_config(
        **{"max_steps": STEPS, "save_strategy": "steps", "save_steps": SAVE_STEPS, **fields},
        # With the default, the learning rate of a step after the last one would be 0.
        lr_scheduler_type="constant",
        peft_config=LORA if lora else None,
    )


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_an_attempt_after_a_kill_ends_with_the_weights_of_an_unbroken_training(
    run_training, workspace, killing_environment, lora
):
    check_kills(run_training, workspace, killing_environment, config_for(lora=lora), LORA_KILLS if lora else KILLS)


def test_a_training_continues_after_changes_that_do_not_decide_its_weights(
    run_training, workspace, killing_environment
):
    build = partial(config_for, lora=False)
    check_changes(
        run_training, workspace, killing_environment, build, ATTEMPTS, image="llamafactory-next", model="renamed"
    )


def test_the_pod_that_replaces_a_drained_one_resumes(drain_training):
    outcome, lines = drain_training(tiny_config(epochs=4, batch_size=4, save_strategy="epoch"), 0)
    outcome.raise_for_failure()
    assert resumed_steps(lines) == [saved_step(lines)]
    assert 20 <= saved_step(lines) < 85  # before the first epoch ends, after which a checkpoint is saved anyway
