"""Choice and protection of the checkpoint of another training from which a new one starts."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from functools import partial

import pytest

from tests.support.killed_calls import kill_at_file_access
from tests.unit.frameworks.test_checkpoints import list_steps, save
from trainjob.errors import InvalidSpec
from trainjob.frameworks.checkpoint_owner import KEPT_CHECKPOINTS, TRAINING_FILE, CheckpointOwner
from trainjob.frameworks.durable_files import read_object
from trainjob.frameworks.transformers.checkpoints import claim_checkpoints, discard_checkpoint

FIELDS = {"framework": "trl", "config.method": "sft", "config.learning_rate": 0.2}
FIRST = CheckpointOwner("digest-1", FIELDS, "nightly-1")
NEW_FIELDS = {**FIELDS, "config.learning_rate": 0.1, "resume_from.step": 9}
NEW = CheckpointOwner("digest-1", NEW_FIELDS, "nightly-1", {"step": 9})


@pytest.fixture
def output(tmp_path):
    """Return the output folder of a training with three checkpoints."""
    folder = tmp_path / "output"
    claim_checkpoints(folder, FIRST)
    save(folder, FIRST, 9, 10, 11)
    return folder


def test_the_new_training_starts_from_the_named_step_and_then_continues_its_own(output, capsys):
    parent = claim_checkpoints(output, NEW)
    kept = output / KEPT_CHECKPOINTS / FIRST.digest
    assert parent == kept / "checkpoint-9"
    line = f"starts from step 9 of run nightly-1 ({parent}), with config.learning_rate 0.1 instead of 0.2\n"
    assert line in capsys.readouterr().out
    assert list_steps(kept) == [9, 10, 11]  # two others, and the parent
    assert claim_checkpoints(output, NEW) == parent
    save(output, NEW, 12)
    assert claim_checkpoints(output, NEW) == output / "checkpoint-12"
    assert list_steps(kept) == [10, 11]
    described = read_object(output / TRAINING_FILE)["parent"]
    assert described == {
        "run": "nightly-1",
        "step": 9,
        "folder": str(parent),
        "changed": ["config.learning_rate 0.1 instead of 0.2"],
    }
    mark = read_object(output / "checkpoint-12/trainjob_complete")
    assert (mark["run_name"], mark["fields"], mark["parent"]) == ("nightly-1", NEW_FIELDS, described)


def test_the_newest_checkpoint_that_meets_all_conditions_is_chosen(output, tmp_path):
    other = CheckpointOwner("digest-2", FIELDS, "nightly-2")
    claim_checkpoints(output, other)
    save(output, other, 3, 5)
    for folder in (output / "checkpoint-3", output / KEPT_CHECKPOINTS / FIRST.digest / "checkpoint-10"):
        os.utime(folder / "trainjob_complete", (2e9, 2e9))
    (output / KEPT_CHECKPOINTS / FIRST.digest / "checkpoint-11/model.safetensors").unlink()
    before = sorted(output.rglob("*"))

    def choose(**wanted):
        new = tmp_path / f"new-{len(list(tmp_path.iterdir()))}"
        wanted = {"folder": str(output), **wanted}
        return claim_checkpoints(new, replace(NEW, resume_from=wanted)).relative_to(output)

    assert choose(run="nightly-1").name == "checkpoint-10"  # 11 is damaged
    assert choose(run="nightly-2").name == "checkpoint-5"  # the last step of the newest training
    assert str(choose(step=3)) == "checkpoint-3"
    assert str(choose(folder=str(output / "checkpoint-3"))) == "checkpoint-3"
    assert sorted(output.rglob("*")) == before  # another training's folder is only read


@pytest.mark.parametrize("wanted", [{"step": 8}, {"run": "nightly-3"}, {"step": 9, "run": "other"}])
def test_no_such_checkpoint_is_an_error_that_lists_what_exists(output, wanted):
    with pytest.raises(InvalidSpec) as raised:
        claim_checkpoints(output, replace(NEW, resume_from=wanted), limit=1)
    text = str(raised.value)
    assert "resume_from" in text
    assert all(f"step {step} of run nightly-1" in text for step in (9, 10, 11))
    assert claim_checkpoints(output, FIRST) == output / "checkpoint-11"
    assert list_steps(output) == [9, 10, 11]


@pytest.mark.parametrize(
    ("before", "now", "field"),
    [
        ({}, {"framework": "unsloth"}, "framework"),
        ({}, {"config.method": "dpo"}, "config.method"),
        ({}, {"files of model": "ab"}, "files of model"),
        ({}, {"config.peft_config.lora_rank": 8}, "config.peft_config"),
        ({"config.peft_config": {}}, {}, "config.peft_config"),
        ({"config.peft_config.lora_rank": 8}, {"config.peft_config.lora_rank": 16}, "config.peft_config.lora_rank"),
        (
            {"config.peft_config.lora_rank": 8},
            {"config.peft_config.target_modules": ["q"]},
            "config.peft_config.lora_rank",
        ),
        ({}, {"config.arguments.optim": "sgd"}, "config.arguments.optim"),
        ({}, {"function": "sha256:1"}, "function"),
    ],
)
def test_a_change_with_which_the_state_cannot_be_loaded_is_refused(tmp_path, before, now, field):
    first = replace(FIRST, fields={**FIELDS, **before})
    claim_checkpoints(tmp_path, first)
    save(tmp_path, first, 9)
    with pytest.raises(InvalidSpec) as raised:
        claim_checkpoints(tmp_path, replace(NEW, fields={**NEW_FIELDS, **now}))
    assert [problem.field for problem in raised.value.problems] == [field]


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"config.peft_config.lora_rank": 8}, {"config.peft_config.lora_rank": 8, "config.peft_config.lora_alpha": 2}),
        ({"files of data": "a"}, {"files of data": "b", "config.max_length": 9}),
        ({"function": "sha256:1"}, {"function": "sha256:2", "trainer.func_args.rate": 2}),
    ],
)
def test_other_changes_are_accepted(tmp_path, before, now):
    first = replace(FIRST, fields={**FIELDS, **before})
    claim_checkpoints(tmp_path, first)
    save(tmp_path, first, 9)
    assert claim_checkpoints(tmp_path, replace(NEW, fields={**NEW_FIELDS, **now})).name == "checkpoint-9"


def test_a_start_that_is_killed_at_any_file_access_can_be_repeated(tmp_path):
    for point in range(400):
        shutil.rmtree(tmp_path / "output", ignore_errors=True)
        claim_checkpoints(tmp_path / "output", FIRST)
        save(tmp_path / "output", FIRST, 9, 10, 11, 12)
        status = kill_at_file_access(partial(claim_checkpoints, tmp_path / "output", NEW), point)
        parent = claim_checkpoints(tmp_path / "output", NEW)
        assert parent.name == "checkpoint-9"
        assert (parent / "shards/optimizer.pt").read_text() == "moments"
        if status == 0:
            break
    assert point > 10


def test_a_lost_own_checkpoint_is_an_error_if_the_parent_is_gone(output):
    claim_checkpoints(output, NEW)
    discard_checkpoint(output / KEPT_CHECKPOINTS / FIRST.digest / "checkpoint-9")
    with pytest.raises(InvalidSpec, match="step 10 of run nightly-1"):
        claim_checkpoints(output, NEW)
    assert json.loads((output / TRAINING_FILE).read_text())["owner"] == NEW.digest
