"""Conditions under which a training resumes after the last complete epoch of an earlier attempt."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.support.recorded_programs import RECORDED_COMMANDS
from trainjob import FineTune, InvalidSpec, LoraConfig, TorchTuneConfig
from trainjob.manifest import build_trainjob, spec_hash, to_trainjob

RUN = "0123456789abcdef-0123456789abcdef"
# Replaces `tune`: prints its arguments and PYTHONPATH.
PRINT_ARGUMENTS = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['PYTHONPATH']]))"


@pytest.fixture
def workspace(tmp_path):
    """Return a workspace with a run that saved two complete epochs and an incomplete one."""
    for name in (
        "model/config.json",
        "model/original/tokenizer.model",
        "dataset/data/train.parquet",
        "dataset/.cache/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    start_training(tmp_path)
    for epoch in (0, 1, 2):
        folder = tmp_path / "output" / f"epoch_{epoch}"
        folder.mkdir()
        files = {f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
        for name in files:
            (folder / name).write_text("weights")
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": dict(zip("ab", files, strict=True))})
        )
        if epoch < 2:
            (tmp_path / "output/recipe_state" / f"epoch_{epoch}.pt").write_text("state")
    return tmp_path


def run_program(workspace, *more, run=RUN, packed=()):
    """Run the program; return its messages, the arguments that it added, and PYTHONPATH.

    `packed` is the command of another version's program.
    """
    step = FineTune(model="llama3.2-1b", workspace="w", config=TorchTuneConfig(epochs=4))
    trainer = to_trainjob(step, run=run).trainer
    start = trainer.args.index("tune")
    options = [word.replace("/workspace", str(workspace)) for word in trainer.args[:start]]
    command = [
        sys.executable,
        *(packed or trainer.command)[1:],
        *options,
        *more,
        sys.executable,
        "-c",
        PRINT_ARGUMENTS,
        "own",
    ]
    environment = {**os.environ, "PYTHONPATH": "/theirs"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    *messages, last = done.stdout.splitlines()
    words, packages = json.loads(last)
    assert words[0] == "own"
    return messages, words[1:], packages


def start_training(workspace):
    run_program(workspace)


CHECKPOINTER = "checkpointer._component_=trainjob.frameworks.torchtune.pod.checkpointer.ResumableCheckpointer"


def test_the_last_complete_epoch_is_resumed(workspace):
    messages, words, packages = run_program(workspace)
    assert messages == [f"resumed from epoch 2: {workspace}/output/epoch_1 is complete"]
    shards = ",".join(f"epoch_1/model-0000{n}-of-00002.safetensors" for n in (1, 2))
    assert words == [
        CHECKPOINTER,
        "resume_from_checkpoint=True",
        "checkpointer.recipe_checkpoint=recipe_state/epoch_1.pt",
        f"checkpointer.checkpoint_files=[{shards}]",
    ]
    ours, theirs = packages.split(os.pathsep)
    assert theirs == "/theirs"
    importing = [
        sys.executable,
        "-I",
        "-c",
        "import sys; sys.path.insert(0, sys.argv[1]); import trainjob.frameworks.torchtune.pod.epochs",
    ]
    subprocess.run([*importing, ours], check=True, timeout=300)


def test_the_epochs_of_an_earlier_version_are_resumed(workspace):
    (workspace / "output/recipe_state/run").unlink()
    states = [(path, path.read_text()) for path in (workspace / "output/recipe_state").glob("epoch_*.pt")]
    # The earlier version's program starts from the beginning, and deletes the states.
    messages, [checkpointer], _ = run_program(workspace, packed=RECORDED_COMMANDS["resume"])
    assert messages == []
    assert checkpointer == "checkpointer._component_=trainjob.resume.checkpointer.WholeEpochsCheckpointer"
    for path, text in states:
        path.write_text(text)
    assert run_program(workspace)[0] == [f"resumed from epoch 2: {workspace}/output/epoch_1 is complete"]


def test_an_adapter_is_resumed_with_its_schedule(workspace):
    (workspace / "output/epoch_1/adapter_model.pt").write_text("adapter")
    messages, words, _ = run_program(workspace, "--adapter")
    assert messages
    assert words[2:] == [
        "checkpointer.recipe_checkpoint=recipe_state/epoch_1.pt",
        "checkpointer.adapter_checkpoint=epoch_1/adapter_model.pt",
        "lr_scheduler._component_=trainjob.frameworks.torchtune.pod.schedule.get_resumed_cosine_schedule",
        "lr_scheduler.epochs=${epochs}",
        "lr_scheduler.epochs_done=2",
    ]


def change_file(path):
    path.write_text(path.read_text() + "!")


@pytest.mark.parametrize(
    "change",
    [
        lambda at: change_file(at / "model/config.json"),
        lambda at: (at / "dataset/data/more.parquet").write_text("more"),
        lambda at: (at / "output/recipe_state/run").unlink(),
        lambda at: (at / "output/epoch_1/model-00002-of-00002.safetensors").unlink(),
        lambda at: (at / "output/epoch_1/model.safetensors.index.json").write_text('{"weight_map": '),
        lambda at: (at / "output/epoch_2/adapter_model.pt").write_text("another run's"),
        lambda at: [path.unlink() for path in (at / "output/recipe_state").glob("*.pt")],
    ],
    ids=["other-model", "more-data", "no-owner", "missing-shard", "cut-index", "foreign-adapter", "no-state"],
)
def test_an_epoch_of_another_run_or_an_incomplete_one_is_not_resumed(workspace, change):
    change(workspace)
    for _ in range(2):  # the next attempt does not resume either, because this one saves nothing
        messages, words, _ = run_program(workspace)
        assert (messages, words) == ([], [CHECKPOINTER])
        assert not list((workspace / "output/recipe_state").glob("*.pt"))


def test_another_runs_epochs_are_not_resumed(workspace):
    assert run_program(workspace, run="another")[1] == [CHECKPOINTER]
    assert run_program(workspace)[1] == [CHECKPOINTER]


def test_hidden_files_of_the_inputs_do_not_count(workspace):
    (workspace / "dataset/.cache/y").write_text("fetched when")
    assert run_program(workspace)[0]


def command_words(run=RUN, resume=True, workspace="w", **config):
    step = FineTune(model="llama3.2-1b", workspace=workspace, config=TorchTuneConfig(**config), resume=resume)
    trainer = build_trainjob(to_trainjob(step, run=run), name="n", namespace="ns")["spec"]["trainer"]
    return trainer["command"], trainer["args"]


def test_the_program_precedes_the_command_of_torchtune():
    command, args = command_words(peft_config=LoraConfig())
    assert max(map(len, command)) <= 65_536  # Trainer 2.2's limit for an item
    assert command[0] == "python"
    start = args.index("tune")
    assert args[:start] == [
        *("--run", RUN, "--output", "/workspace/output"),
        *("--input", "/workspace/model", "--input", "/workspace/dataset", "--adapter"),
    ]
    assert args[start + 1 :] == command_words(resume=False, peft_config=LoraConfig())[1]


@pytest.mark.parametrize(
    "given",
    [
        {"run": ""},
        {"resume": False},
        {"overrides": ["checkpointer=torchtune.training.FullModelMetaCheckpointer"]},
        {"overrides": ["lr_scheduler._component_=mine.schedule"]},
        {"overrides": ["device=cpu"], "peft_config": LoraConfig()},
    ],
    ids=str,
)
def test_without_resuming_the_command_is_tune(given):
    assert command_words(**given)[0] == ["tune"]


def test_several_nodes_do_not_resume():
    config = TorchTuneConfig(num_nodes=2, resources_per_node={"gpu": 8})
    step = FineTune(model="llama3.3-70b", workspace="w", config=config)
    assert to_trainjob(step, run=RUN).trainer.command == ("tune",)


def test_an_override_of_the_checkpoint_requires_resume_false():
    with pytest.raises(InvalidSpec) as caught:
        command_words(overrides=["resume_from_checkpoint=True"])
    [problem] = caught.value.problems
    assert problem.field == "config.overrides"
    assert "resume=False" in problem.allowed
    assert command_words(resume=False, overrides=["resume_from_checkpoint=True"])[0] == ["tune"]


def test_the_hash_of_requests_from_before_resuming_is_unchanged():
    step = {"model": "llama3.2-1b", "workspace": "w"}
    assert spec_hash(FineTune(**step)) == spec_hash(FineTune(**step, resume=True))
    assert spec_hash(FineTune(**step)) != spec_hash(FineTune(**step, resume=False))
