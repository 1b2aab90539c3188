"""A training with LLaMA-Factory copies its checkpoints, and continues from the copy on a new workspace."""

from __future__ import annotations

import pytest

from tests.integration.llamafactory.tiny_llamafactory import tiny_config
from tests.support.copied_trainings import (
    URI,
    copying_environment,
    killing_environment,
    list_copies,
    replace_workspace,
    store,
    to_store,
)
from tests.support.interrupted_trainings import resumed_steps

__all__ = ["copying_environment", "killing_environment", "store", "to_store"]

pytestmark = [pytest.mark.llamafactory, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]


def config_for(steps):
    return tiny_config(max_steps=steps, save_strategy="steps", save_steps=2, arguments={"save_total_limit": 2})


def test_a_longer_training_continues_from_the_copy_of_a_complete_one(
    run_training, workspace, hub, store, to_store, copying_environment
):
    fields = {**to_store(store.url, store.environment), "env": copying_environment}
    outcome, _ = run_training("run", config_for(6), **fields)
    outcome.raise_for_failure()
    assert list_copies(store) == [6]
    replace_workspace(workspace, hub)
    outcome, lines = run_training("run", config_for(8), **fields)
    outcome.raise_for_failure()
    assert resumed_steps(lines) == [6]
    assert any(line.endswith(f"checkpoint-6 is complete, and was fetched from {URI}") for line in lines)
    assert list_copies(store) == [8]
