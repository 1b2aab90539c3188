"""A training whose workspace is lost continues from the copy of its last checkpoint in an object store."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from tests.integration.trl.tiny_trl import tiny_config
from tests.support.copied_trainings import (
    URI,
    copying_environment,
    killing_environment,
    list_copies,
    replace_workspace,
    store,
    to_store,
)
from tests.support.interrupted_trainings import assert_same_weights, drain_training, resumed_steps, saved_step

__all__ = ["copying_environment", "drain_training", "killing_environment", "store", "to_store"]

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]


def config_for(**arguments):
    fields = {"max_steps": 12, "save_strategy": "steps", "save_steps": 2, "lr_scheduler_type": "constant"}
    return tiny_config(**fields, arguments=arguments)


def wait_for_copies(store):
    """Return the step of the newest copy, after the process that copies has ended, too."""
    sent = -1
    while len(store.sent_keys()) > sent:
        sent = len(store.sent_keys())
        time.sleep(3)
    [step] = list_copies(store)
    return step


def test_a_training_on_a_new_workspace_continues_from_the_copy(
    run_training, workspace, hub, store, to_store, copying_environment, tmp_path
):
    outcome, _ = run_training("unbroken", config_for())
    outcome.raise_for_failure()
    shutil.copytree(workspace / "output/unbroken", tmp_path / "unbroken")

    fields = to_store(store.url, store.environment)
    killing = {**copying_environment, "KILL_AT": "checkpoint-12/trainer_state.json"}
    outcome, lines = run_training("run", config_for(), env=killing, **fields)
    assert (outcome.succeeded, Path(killing["KILLED"]).exists()) == (False, True), lines[-20:]
    assert any(re.match(rf"copied checkpoint-\d+ \(.*\) to {URI} in \d+ s", line) for line in lines), lines
    step = wait_for_copies(store)
    replace_workspace(workspace, hub)

    damaged = next(store.objects[key] for key in store.objects if key.endswith(f"-{step}/optimizer.pt"))
    data, damaged.data = damaged.data, damaged.data[::-1]
    outcome, lines = run_training("run", config_for(), env=copying_environment, **fields)
    assert not outcome.succeeded
    assert any(f"checkpoint-{step} cannot be fetched from {URI}: optimizer.pt" in line for line in lines), lines[-20:]
    damaged.data = data

    outcome, lines = run_training("run", config_for(), env=copying_environment, **fields)
    outcome.raise_for_failure()
    assert resumed_steps(lines) == [step]
    [line] = [line for line in lines if line.startswith("continues from ")]
    assert line.endswith(f"checkpoint-{step} is complete, and was fetched from {URI}")
    assert_same_weights(tmp_path / "unbroken", workspace / "output/run")
    assert store.read_prefix("models/checkpoints") == {}  # the training is complete
    assert not any(secret in line for line in lines for secret in store.environment.values())


def test_copies_stay_with_the_checkpoints_that_were_requested(run_training, store, to_store, copying_environment):
    fields = to_store(store.url, store.environment)
    outcome, _ = run_training("run", config_for(save_total_limit=2), env=copying_environment, **fields)
    outcome.raise_for_failure()
    assert list_copies(store) == [12]


@pytest.mark.parametrize("failure", ["denied", "refused"])
def test_a_failing_store_never_fails_a_training(run_training, workspace, store, to_store, copying_environment, failure):
    endpoint = "http://127.0.0.1:1" if failure == "refused" else store.url
    fields = to_store(endpoint, store.credentials(valid=failure == "refused"))
    outcome, lines = run_training("run", config_for(), env=copying_environment, **fields)
    outcome.raise_for_failure()
    assert (workspace / "output/run/model.safetensors").is_file()
    warnings = [line for line in lines if line.startswith("warning: ")]
    reason = "access denied" if failure == "denied" else "error sending request"
    assert sum("cannot be read: " in line and reason in line for line in warnings) == 1, warnings
    found = [int(each[1]) for line in warnings if (each := re.match(r"warning: checkpoint-(\d+) is not copied", line))]
    assert found in ([2, 4, 6, 8, 10], [2, 4, 6, 8, 10, 12]), warnings  # the training may end before the last one
    assert store.objects == {}
    assert not any(secret in line for line in lines for secret in store.credentials(valid=False).values())


def test_the_checkpoint_of_a_drained_pod_is_copied_before_its_end(
    drain_training, workspace, store, to_store, copying_environment
):
    """A pod with SIGTERM that is replaced at once continues from the workspace, so the requests of the store count."""
    fields = to_store(store.url, store.environment)
    config = tiny_config(epochs=4, batch_size=4, save_strategy="epoch")
    outcome, lines = drain_training(config, 0, env=copying_environment, **fields)
    outcome.raise_for_failure()
    step = saved_step(lines)
    assert resumed_steps(lines) == [step]
    assert any(line.startswith(f"copied checkpoint-{step} (") for line in lines), lines
    marked = f"checkpoint-{step}/trainjob_complete"
    assert any(method == "PUT" and key.endswith(marked) for method, key in store.requests)
