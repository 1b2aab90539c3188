"""A training that is killed while it saves goes on in its next attempt, to the weights of one that was not."""

from __future__ import annotations

import filecmp
from pathlib import Path

import pytest

from tests.integration.torchtune.tiny_trainings import METHODS, tiny_config

pytestmark = [pytest.mark.torchtune, pytest.mark.slow, pytest.mark.timeout(300)]

# Read by every Python of the pod: kills the first one that begins to write this file.
KILLER_PROGRAM = """
import os, signal, sys

def look(event, arguments):
    if event == "open" and str(arguments[0]).endswith(os.environ["KILL_AT"]) and "w" in str(arguments[1]):
        try:
            os.close(os.open(os.environ["KILLED"], os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(look)
"""
EPOCHS = 4
# On a CPU, TorchTune merges adapters into the very weights that it goes on to train with (torchtune 0.6.1,
# get_merged_lora_ckpt on what `.cpu()` does not copy there), so that an adapter alone is not all that was
# learned: there only trainings that save nothing else are resumed. What is fetched from a GPU is a copy, and so it is
# here where a CPU stands in for one; quoted, as it would not be resumed otherwise.
ADAPTER_ONLY, CPU_ARGUMENT = "save_adapter_weights_only=True", 'device="cpu"'
SAVE_METHODS = {
    "full": ("full", (), "model.safetensors.index.json"),
    "lora": ("lora", (ADAPTER_ONLY,), "adapter_config.json"),
    "merged-lora": ("lora", (CPU_ARGUMENT,), "adapter_config.json"),
}


@pytest.fixture
def killing_environment(tmp_path, cpu_for_gpus):
    """The environment of a training that is killed once, in the middle of its third save."""
    folder = tmp_path / "killer"
    folder.mkdir()
    stand_in = Path(cpu_for_gpus["PYTHONPATH"], "sitecustomize.py").read_text()
    (folder / "sitecustomize.py").write_text(stand_in + KILLER_PROGRAM)
    return {
        "PYTHONPATH": str(folder),
        "KILLED": str(tmp_path / "killed"),
    }


def epoch_folder(workspace: Path, name: str, epoch: int) -> Path:
    return workspace / "output" / name / f"epoch_{epoch}"


@pytest.mark.parametrize("way", SAVE_METHODS)
def test_the_next_attempt_goes_on_to_the_same_weights(
    run_training, workspace, cpu_for_gpus, killing_environment, way, evidence
):
    """Bit for bit: TorchTune's trainings on one CPU process are, and what is resumed holds all that they depend on."""
    method, overrides, last_file = SAVE_METHODS[way]
    killing_environment["KILL_AT"] = f"epoch_2/{last_file}"
    config = tiny_config(*overrides, epochs=EPOCHS, peft_config=METHODS[method], seed=7)
    outcome, lines = run_training("unbroken", config, env=cpu_for_gpus)
    outcome.raise_for_failure()
    assert not [line for line in lines if "resumed from epoch" in line]

    outcome, _ = run_training("broken", config, env=killing_environment)
    assert (outcome.phase.value, Path(killing_environment["KILLED"]).exists()) == ("Failed", True)
    left = epoch_folder(workspace, "broken", 2)
    assert list(left.glob("*.safetensors"))  # it was killed in the middle of this folder
    assert not (left / "tokenizer.json").exists()

    outcome, lines = run_training("broken", config, env=killing_environment)
    outcome.raise_for_failure()
    assert outcome.progress.step == outcome.progress.total
    [told] = [line for line in lines if "resumed from epoch" in line]
    assert told.startswith("resumed from epoch 2: ")
    for epoch in range(EPOCHS):
        one, other = epoch_folder(workspace, "unbroken", epoch), epoch_folder(workspace, "broken", epoch)
        names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
        assert names == sorted(str(path.relative_to(other)) for path in other.rglob("*") if path.is_file())
        assert filecmp.cmpfiles(one, other, names, shallow=False)[1:] == ([], [])
    assert not list((workspace / "output" / "broken" / "recipe_state").glob("*.pt"))
    evidence("features", row="resume", cell="real run")
