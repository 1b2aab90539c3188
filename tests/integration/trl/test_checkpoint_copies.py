"""A training whose workspace is lost continues from the copy of its last checkpoint in an object store."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest
from kubernetes import client, config

from tests.integration.trl.tiny_trl import tiny_config
from tests.support.interrupted_trainings import (
    assert_same_weights,
    drain_training,
    killing_environment,
    resumed_steps,
    saved_step,
)
from tests.support.s3_server import S3Server
from tests.support.training_fixtures import ROOT

__all__ = ["drain_training", "killing_environment"]

pytestmark = [pytest.mark.trl, pytest.mark.slow, pytest.mark.timeout(600, func_only=True)]

URI = "s3://models/checkpoints"
MARK = re.compile(r"[0-9a-f]{32}/checkpoint-([0-9]+)/trainjob_complete")


def config_for(**arguments):
    fields = {"max_steps": 12, "save_strategy": "steps", "save_steps": 2, "lr_scheduler_type": "constant"}
    return tiny_config(**fields, arguments=arguments)


@pytest.fixture
def store():
    with S3Server() as server:
        yield server


@pytest.fixture
def copying_environment(killing_environment):
    """Return the environment of a training with opendal, which the image does not contain."""
    [package] = (ROOT / ".venv/initializer/lib").glob("python3*/site-packages/opendal")
    Path(killing_environment["PYTHONPATH"], "opendal").symlink_to(package)
    return {**killing_environment, "KILL_AT": "nothing"}


@pytest.fixture
def create_secret(laptop, unique):
    opened = config.new_client_from_config(str(laptop.kubeconfig))

    def put(values):
        body = {"metadata": {"name": unique}, "stringData": values}
        client.CoreV1Api(opened).create_namespaced_secret("default", body)
        return unique

    yield put
    opened.close()


def list_copies(store):
    return [int(found[1]) for name in store.read_prefix("models/checkpoints") if (found := MARK.fullmatch(name))]


def wait_for_copies(store):
    """Return the step of the newest copy, after the process that copies has ended, too."""
    sent = -1
    while len(store.sent_keys()) > sent:
        sent = len(store.sent_keys())
        time.sleep(3)
    [step] = list_copies(store)
    return step


def replace_workspace(workspace, hub):
    shutil.rmtree(workspace)
    for source, name in (("models/demo/tiny-llama", "model"), ("datasets/demo/tickets", "dataset")):
        shutil.copytree(hub / source, workspace / name, copy_function=shutil.copyfile)  # with new times


def test_a_training_on_a_new_workspace_continues_from_the_copy(
    run_training, workspace, hub, store, create_secret, copying_environment, tmp_path
):
    outcome, _ = run_training("unbroken", config_for())
    outcome.raise_for_failure()
    shutil.copytree(workspace / "output/unbroken", tmp_path / "unbroken")

    fields = {"checkpoint_uri": URI, "checkpoint_endpoint": store.url, "secret": create_secret(store.environment)}
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


def test_copies_stay_with_the_checkpoints_that_were_requested(run_training, store, create_secret, copying_environment):
    fields = {"checkpoint_uri": URI, "checkpoint_endpoint": store.url, "secret": create_secret(store.environment)}
    outcome, _ = run_training("run", config_for(save_total_limit=2), env=copying_environment, **fields)
    outcome.raise_for_failure()
    assert list_copies(store) == [12]


@pytest.mark.parametrize("failure", ["denied", "refused"])
def test_a_failing_store_never_fails_a_training(
    run_training, workspace, store, create_secret, copying_environment, failure
):
    secret = create_secret(store.credentials(valid=failure == "refused"))
    endpoint = "http://127.0.0.1:1" if failure == "refused" else store.url
    fields = {"checkpoint_uri": URI, "checkpoint_endpoint": endpoint, "secret": secret}
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
    drain_training, workspace, store, create_secret, copying_environment
):
    """A pod with SIGTERM that is replaced at once continues from the workspace, so the requests of the store count."""
    fields = {"checkpoint_uri": URI, "checkpoint_endpoint": store.url, "secret": create_secret(store.environment)}
    config = tiny_config(epochs=4, batch_size=4, save_strategy="epoch")
    outcome, lines = drain_training(config, 0, env=copying_environment, **fields)
    outcome.raise_for_failure()
    step = saved_step(lines)
    assert resumed_steps(lines) == [step]
    assert any(line.startswith(f"copied checkpoint-{step} (") for line in lines), lines
    marked = f"checkpoint-{step}/trainjob_complete"
    assert any(method == "PUT" and key.endswith(marked) for method, key in store.requests)
