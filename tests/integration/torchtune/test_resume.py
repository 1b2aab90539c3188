"""A training that is killed while it saves resumes in its next attempt, and ends with the same weights."""

from __future__ import annotations

import filecmp
from pathlib import Path

import pytest

from tests.integration.torchtune.tiny_trainings import METHODS, tiny_config
from tests.support.changed_trainings import check_changes
from tests.support.interrupted_trainings import KILLER_PROGRAM

pytestmark = [pytest.mark.torchtune, pytest.mark.slow]

EPOCHS = 4
# On a CPU, TorchTune merges adapters into the same weights that it trains on, because `.cpu()` copies nothing there
# (torchtune 0.6.1, get_merged_lora_ckpt). The adapter alone then lacks a part of the training. On a CPU, LoRA is
# therefore resumed only if the training saves nothing but the adapter. With a GPU, `.cpu()` makes a copy. The fixture
# `cpu_for_gpus` makes that copy on a CPU, too. The quotes in CPU_ARGUMENT hide the device from the check, which would
# refuse to resume.
ADAPTER_ONLY, CPU_ARGUMENT = "save_adapter_weights_only=True", 'device="cpu"'
SAVE_METHODS = {
    "full": ("full", (), "model.safetensors.index.json"),
    "lora": ("lora", (ADAPTER_ONLY,), "adapter_config.json"),
    "merged-lora": ("lora", (CPU_ARGUMENT,), "adapter_config.json"),
}


@pytest.fixture
def killing_environment(tmp_path, cpu_for_gpus):
    """Return the environment of a training that is killed once, during its third save."""
    folder = tmp_path / "killer"
    folder.mkdir()
    stand_in = Path(cpu_for_gpus["PYTHONPATH"], "sitecustomize.py").read_text()
    (folder / "sitecustomize.py").write_text(stand_in + KILLER_PROGRAM)
    return {
        "PYTHONPATH": str(folder),
        "KILLED": str(tmp_path / "killed"),
    }


def assert_same_epochs(unbroken: Path, broken: Path) -> None:
    for epoch in range(EPOCHS):
        one, other = (folder / f"epoch_{epoch}" for folder in (unbroken, broken))
        names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
        assert names == sorted(str(path.relative_to(other)) for path in other.rglob("*") if path.is_file())
        assert filecmp.cmpfiles(one, other, names, shallow=False)[1:] == ([], [])


@pytest.mark.parametrize("save_method", SAVE_METHODS)
def test_the_next_attempt_resumes_and_ends_with_the_same_weights(
    run_training, workspace, cpu_for_gpus, killing_environment, save_method, evidence
):
    """The weights are equal bit for bit, because trainings in one CPU process are deterministic."""
    method, overrides, last_file = SAVE_METHODS[save_method]
    killing_environment["KILL_AT"] = f"epoch_2/{last_file}"
    config = tiny_config(*overrides, epochs=EPOCHS, peft_config=METHODS[method], seed=7)
    outcome, lines = run_training("unbroken", config, env=cpu_for_gpus)
    outcome.raise_for_failure()
    assert not [line for line in lines if "continues from epoch" in line]

    outcome, _ = run_training("broken", config, env=killing_environment)
    assert (outcome.phase.value, Path(killing_environment["KILLED"]).exists()) == ("Failed", True)
    partial = workspace / "output" / "broken" / "epoch_2"
    assert list(partial.glob("*.safetensors"))  # it was killed in the middle of this folder
    assert not (partial / "tokenizer.json").exists()

    outcome, lines = run_training("broken", config, env=killing_environment)
    outcome.raise_for_failure()
    assert outcome.progress.step == outcome.progress.total
    [message] = [line for line in lines if "continues from epoch" in line]
    assert message.startswith("continues from epoch 2 of attempt 1: ")
    assert_same_epochs(workspace / "output" / "unbroken", workspace / "output" / "broken")
    assert not list((workspace / "output" / "broken" / "recipe_state").glob("*.pt"))
    evidence("features", row="resume", cell="real run")


LAST_FILE = "model.safetensors.index.json"
# For each attempt: where it is killed, what changes, and from where it continues.
ATTEMPTS = (
    (f"epoch_1/{LAST_FILE}", {}, ""),
    (f"epoch_2/{LAST_FILE}", {"resources_per_node": {"memory": "3Gi"}}, "continues from epoch 1 of attempt 1: "),
    (f"epoch_3/{LAST_FILE}", {"log": "log_every_n_steps=2"}, "continues from epoch 2 of attempt 1: "),
    ("", {}, "continues from epoch 3 of attempt 1: "),
)


def test_a_training_continues_after_changes_that_do_not_decide_its_weights(
    run_training, workspace, cpu_for_gpus, killing_environment
):
    def build(log=None, **fields):
        return tiny_config(*([log] if log else []), epochs=EPOCHS, seed=7, **fields)

    options = {"compare": assert_same_epochs, "env": cpu_for_gpus}
    check_changes(run_training, workspace, killing_environment, build, ATTEMPTS, **options)
