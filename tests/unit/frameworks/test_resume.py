"""Conditions under which a training resumes after the last complete epoch of an earlier attempt."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from trainjob import FineTune, InvalidSpec, LoraConfig, TorchTuneConfig
from trainjob.frameworks.folder_lease import LEASE_FILE
from trainjob.frameworks.torchtune.pod.epochs import mark_complete
from trainjob.manifest import build_trainjob, spec_hash, to_trainjob

RUN = "0123456789abcdef"
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
            (tmp_path / "output/recipe_state").mkdir(exist_ok=True)
            (tmp_path / "output/recipe_state" / f"epoch_{epoch}.pt").write_text("state")
            mark_complete(tmp_path / "output", epoch)
    return tmp_path


def run_program(workspace, *more, run=RUN, **config):
    """Run the program; return its messages, the arguments that it added, and PYTHONPATH."""
    step = FineTune(model="llama3.2-1b", workspace="w", config=TorchTuneConfig(**{"epochs": 4, **config}))
    trainer = to_trainjob(step, run=run).trainer
    start = trainer.args.index("tune")
    options = [word.replace("/workspace", str(workspace)) for word in trainer.args[:start]]
    command = [
        sys.executable,
        *trainer.command[1:],
        *options,
        *more,
        sys.executable,
        "-c",
        PRINT_ARGUMENTS,
        "own",
        *trainer.args[start + 1 :],
    ]
    environment = {**os.environ, "PYTHONPATH": "/theirs", "TRAINJOB_ATTEMPT": "2"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    (workspace / "output" / LEASE_FILE).unlink()  # TorchTune's process would have released it at its end
    *messages, last = done.stdout.splitlines()
    words, packages = json.loads(last)
    given = len(trainer.args[start:])
    assert words[0] == "own"
    return messages, words[given:], packages


def start_training(workspace):
    run_program(workspace)


CHECKPOINTER = "checkpointer._component_=trainjob.frameworks.torchtune.pod.checkpointer.ResumableCheckpointer"


def test_the_last_complete_epoch_is_resumed(workspace):
    messages, words, packages = run_program(workspace)
    assert messages == [f"continues from epoch 2: {workspace}/output/epoch_1 is complete"]
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


def cut(path):
    path.write_text(path.read_text()[:-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda at: (at / "epoch_1/model-00002-of-00002.safetensors").unlink(), "00002.safetensors is missing"),
        (lambda at: cut(at / "epoch_1/model-00002-of-00002.safetensors"), "00002.safetensors has 6 of 7 bytes"),
        (lambda at: cut(at / "recipe_state/epoch_1.pt"), "recipe_state/epoch_1.pt has 4 of 5 bytes"),
        (lambda at: cut(at / "epoch_1/model.safetensors.index.json"), "index.json has "),
        (lambda at: cut(at / "recipe_state/epoch_1.json"), ""),
        (lambda at: (at / "recipe_state/epoch_1.json").write_text('{"owner": 3}'), ""),
        (lambda at: (at / "epoch_2/adapter_model.pt").write_text("of another training"), ""),
    ],
    ids=["no-shard", "cut-shard", "cut-state", "cut-index", "cut-mark", "other-mark", "foreign-adapter"],
)
def test_a_damaged_epoch_is_not_continued(workspace, change, message):
    for name in ("epoch_0.json", "epoch_0.pt"):
        (workspace / "output/recipe_state" / name).unlink()
    change(workspace / "output")
    messages, words, _ = run_program(workspace)
    assert words == [CHECKPOINTER]
    assert message in "".join(messages)
    for _ in range(2):  # the next attempt does not continue either, because this one saves nothing
        assert run_program(workspace)[:2] == ([], [CHECKPOINTER])
        assert not list((workspace / "output/recipe_state").glob("epoch_*"))


def test_the_marks_decide_and_not_the_record(workspace):
    (workspace / "output/trainjob_training.json").unlink()
    assert run_program(workspace)[0][0].startswith("continues from epoch 2")


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"learning_rate": 0.5}, "config.learning_rate was not given and is 0.5"),
        ({"batch_size": 2, "dtype": "fp32"}, "config.batch_size was not given and is 2"),
        ({"run": "another"}, "it is another run of the workflow"),
    ],
)
def test_another_training_keeps_the_epochs_which_return_with_their_own_training(workspace, changed, reason):
    messages, words, _ = run_program(workspace, **changed)
    kept = workspace / "output/kept_checkpoints"
    [message] = messages
    line = f"starts from the beginning, because {reason}; {kept} has the checkpoints of other trainings: "
    assert (message.startswith(line), words) == (True, [CHECKPOINTER])
    assert run_program(workspace, **changed)[0] == []
    [folder] = kept.iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ["epoch_0", "epoch_1", "recipe_state"]
    messages, words, _ = run_program(workspace)
    assert messages == [f"continues from epoch 2: {workspace}/output/epoch_1 is complete"]
    assert "checkpointer.recipe_checkpoint=recipe_state/epoch_1.pt" in words
    assert not kept.exists()


def test_the_epochs_of_two_other_trainings_are_kept(workspace):
    messages = []
    for number in range(3):
        (workspace / "output/recipe_state").mkdir(exist_ok=True)
        (workspace / "output/epoch_0").mkdir(exist_ok=True)
        (workspace / "output/recipe_state/epoch_0.pt").write_text("state")
        mark_complete(workspace / "output", 0)
        messages, _, _ = run_program(workspace, run=f"run-{number}")
        assert len(list((workspace / "output/kept_checkpoints").iterdir())) == min(2, number + 1)
    assert messages[0].endswith("at most 2 checkpoints of other trainings are kept")


@pytest.mark.parametrize(
    "changed", [{"epochs": 5}, {"resources_per_node": {"memory": "8Gi"}}, {"overrides": ["compile=True"]}]
)
def test_a_longer_training_or_one_with_more_memory_continues(workspace, changed):
    assert run_program(workspace, **changed)[0] == [
        f"continues from epoch 2: {workspace}/output/epoch_1 is complete",
    ]


def test_a_training_with_fewer_epochs_than_are_done_starts_anew_and_loses_nothing(workspace):
    (workspace / "output/recipe_state/epoch_0.json").unlink()
    for _ in range(2):
        assert run_program(workspace, epochs=2)[1] == [CHECKPOINTER]
    assert run_program(workspace, epochs=3)[0] == [
        f"continues from epoch 2: {workspace}/output/epoch_1 is complete",
    ]


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
    fields = {"config.peft_config": {}, "framework": "torchtune", "model": "llama3.2-1b", "processes": 1}
    assert json.loads(args[1]) == {"run": RUN, "fields": fields}
    assert args[:start] == [
        *("--run", args[1], "--output", "/workspace/output"),
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
    step = {"model": "llama3.2-1b", "workspace": "w", "config": TorchTuneConfig()}
    assert spec_hash(FineTune(**step)) == spec_hash(FineTune(**step, resume=True))
    assert spec_hash(FineTune(**step)) != spec_hash(FineTune(**step, resume=False))
