"""Claim of an output folder: which checkpoint a training continues from, and what happens to all others."""

from __future__ import annotations

import json
import os
import shutil
from functools import partial

import pytest

from tests.support.killed_calls import kill_at_file_access
from trainjob.frameworks.checkpoint_owner import KEPT_CHECKPOINTS, CheckpointOwner, find_owner
from trainjob.frameworks.transformers.checkpoints import (
    claim_checkpoints,
    discard_checkpoints,
    mark_complete,
    remove_mark,
)

MINE = CheckpointOwner("run-1", {"config.learning_rate": 0.1, "config.method": "sft"})
CHANGED = CheckpointOwner("run-1", {"config.learning_rate": 0.2, "config.method": "sft"})
OTHER_RUN = CheckpointOwner("run-2", MINE.fields)


def save(output, owner, *steps, complete=True):
    for step in steps:
        folder = output / f"checkpoint-{step}"
        (folder / "shards").mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_text(f"weights of step {step}")
        (folder / "shards/optimizer.pt").write_text("moments")
        if complete:
            mark_complete(folder, owner.digest)


def claim(output, owner, **options):
    found = claim_checkpoints(output, owner, **options)
    return found and int(found.name.removeprefix("checkpoint-"))


def list_steps(folder):
    return sorted(int(path.name.removeprefix("checkpoint-")) for path in folder.glob("checkpoint-*[0-9]"))


@pytest.fixture
def output(tmp_path):
    """Return a folder in which a training has saved two checkpoints."""
    folder = tmp_path / "output"
    assert claim(folder, MINE) is None
    save(folder, MINE, 9, 10)
    return folder


def test_the_last_complete_checkpoint_is_continued_and_an_incomplete_one_removed(output, capsys):
    save(output, MINE, 20, complete=False)
    (output / "checkpoint-final").mkdir()
    (output / "checkpoint-30").write_text("a file")
    assert claim(output, MINE) == 10
    assert sorted(path.name for path in output.glob("checkpoint-*")) == [
        *("checkpoint-10", "checkpoint-30", "checkpoint-9", "checkpoint-final")
    ]
    assert capsys.readouterr().out == (
        f"removed {output}/checkpoint-20: its save was not complete\n"
        f"continues from step 10: {output}/checkpoint-10 is complete\n"
    )
    remove_mark(output / "checkpoint-10")
    assert claim(output, MINE) == 9


def test_the_log_names_the_attempt_that_saved(output, capsys, monkeypatch):
    monkeypatch.setenv("TRAINJOB_ATTEMPT", "3")
    save(output, MINE, 11)
    assert claim(output, MINE) == 11
    assert capsys.readouterr().out.startswith("continues from step 11 of attempt 3: ")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda at: os.truncate(at / "shards/optimizer.pt", 3), "shards/optimizer.pt has 3 of 7 bytes"),
        (lambda at: (at / "model.safetensors").unlink(), "model.safetensors is missing"),
        (lambda at: shutil.rmtree(at / "shards"), "shards/optimizer.pt is missing"),
        (lambda at: os.truncate(at / "trainjob_complete", 20), "its save was not complete"),
        (lambda at: (at / "trainjob_complete").write_bytes(b"\xff"), "its save was not complete"),
    ],
)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(output, damage, message, capsys):
    damage(output / "checkpoint-10")
    assert claim(output, MINE) == 9
    assert f"removed {output}/checkpoint-10: {message}\n" in capsys.readouterr().out
    assert list_steps(output) == [9]


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        (CHANGED, "config.learning_rate was 0.1 and is 0.2"),
        (OTHER_RUN, "it is another run of the workflow"),
        (CheckpointOwner("run-1", {**MINE.fields, "files of model": "ab"}), "files of model has changed"),
        (CheckpointOwner("run-1", {"config.method": "sft"}), "config.learning_rate was 0.1 and is not given"),
        (CheckpointOwner("", {}), "resuming is off"),
    ],
)
def test_another_training_says_why_it_starts_anew_and_keeps_the_checkpoints(output, owner, reason, capsys):
    assert claim(output, owner) is None
    kept = output / KEPT_CHECKPOINTS
    line = f"starts from the beginning, because {reason}; {kept} has the checkpoints of other trainings: "
    names = sorted(capsys.readouterr().out.removeprefix(line).rstrip().split(", "))
    assert names == [f"{MINE.digest}/checkpoint-10", f"{MINE.digest}/checkpoint-9"]
    assert (list_steps(output), list_steps(kept / MINE.digest)) == ([], [9, 10])
    save(output, owner, 10)  # the same name as one of the other training
    assert claim(output, MINE) == 10
    assert (output / "checkpoint-10/model.safetensors").read_text() == "weights of step 10"
    assert (list_steps(output), list_steps(kept / owner.digest)) == ([9, 10], [10])
    assert claim(output, owner) == 10


def test_the_newest_checkpoints_of_other_trainings_are_kept(output, capsys):
    for number in range(2, 6):
        owner = CheckpointOwner(f"run-{number}", {})
        claim(output, owner, limit=3)
        save(output, owner, number)
    claim(output, MINE, limit=3)
    kept = {path.parent.name: path.name for path in (output / KEPT_CHECKPOINTS).glob("*/*")}
    assert sorted(kept.values()) == ["checkpoint-3", "checkpoint-4", "checkpoint-5"]
    assert "at most 3 checkpoints of other trainings are kept" in capsys.readouterr().out
    assert not (output / KEPT_CHECKPOINTS / MINE.digest).exists()


def test_a_shorter_training_keeps_the_later_checkpoints_for_the_longer_one(output):
    assert claim(output, MINE, is_within=lambda path: path.name == "checkpoint-9") == 9
    assert list_steps(output) == [9]
    assert claim(output, MINE) == 10


def test_foreign_checkpoints_are_moved_and_not_removed(tmp_path):
    save(tmp_path, MINE, 5, complete=False)  # somebody has copied it, and no training has started here
    (tmp_path / "checkpoint-6").mkdir()
    (tmp_path / "checkpoint-6/trainjob_complete").write_text(json.dumps({"owner": "../../escape"}))
    assert claim(tmp_path, MINE) is None
    assert list_steps(tmp_path / KEPT_CHECKPOINTS / "unknown") == [5, 6]


def test_a_repeated_training_discards_its_own_checkpoints(output):
    save(output, MINE, 11)
    claim(output, CHANGED)
    save(output, CHANGED, 12)
    discard_checkpoints(output, MINE.digest)
    assert claim(output, MINE) is None
    assert claim(output, CHANGED) == 12


def test_a_claim_that_is_killed_at_any_file_access_loses_nothing(tmp_path):
    """The claim is killed, then another training's claim is killed, and so on; at the end, both continue."""
    for point in range(200):
        shutil.rmtree(tmp_path / "output", ignore_errors=True)
        claim(tmp_path / "output", MINE)
        save(tmp_path / "output", MINE, 9, 10)
        claim(tmp_path / "output", CHANGED)
        save(tmp_path / "output", CHANGED, 10)
        status = kill_at_file_access(partial(claim_checkpoints, tmp_path / "output", MINE), point)
        kill_at_file_access(partial(claim_checkpoints, tmp_path / "output", CHANGED), point)
        assert claim(tmp_path / "output", MINE) == 10
        assert (tmp_path / "output/checkpoint-9/model.safetensors").exists()
        assert claim(tmp_path / "output", CHANGED) == 10
        if status == 0:
            break
    assert point > 10


def test_an_owner_is_the_same_for_the_same_text_and_files():
    text = json.dumps({"run": "r", "fields": {"a": 1}})
    first = find_owner(text, {"files of model": "1"})
    assert (first.run, first.fields) == ("r", {"a": 1, "files of model": "1"})
    assert find_owner(text, {"files of model": "1"}).digest == first.digest
    assert find_owner(text, {"files of model": "2"}).digest != first.digest
