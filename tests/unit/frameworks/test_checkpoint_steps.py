"""Steps of a training that saves checkpoints, without PyTorch."""

from __future__ import annotations

import builtins
import subprocess
import sys

import pytest

from trainjob.checkpoint import Training, resume_training
from trainjob.frameworks.transformers.checkpoints import mark_complete
from trainjob.frameworks.transformers_log_parser import TransformersLogParser


class State:
    """State of a training that writes one file."""

    def __init__(self):
        self.restored = 0

    def restore_random_numbers(self):
        self.restored += 1

    def save(self, checkpoint):
        checkpoint.mkdir()
        (checkpoint / "weights").write_text("weights")


class Vote:
    """Vote of one process, which passes after some steps."""

    def __init__(self, passes_at=0, *, is_first=True):
        self.is_first, self.events, self._left = is_first, [], passes_at

    def passes(self):
        self._left -= 1
        return self._left == 0

    def complete_save(self, checkpoint, owner):
        mark_complete(checkpoint, owner)
        if self._left == 0:
            raise SystemExit(143)

    def wait_for_all(self):
        pass

    def listen(self):
        self.events.append("listen")

    def stop_listening(self):
        self.events.append("stop")


def list_saved(folder):
    return sorted(int(path.name.removeprefix("checkpoint-")) for path in folder.glob("checkpoint-*"))


def test_each_step_that_is_not_done_is_yielded_and_the_last_two_checkpoints_are_kept(tmp_path):
    state, vote, seen = State(), Vote(), {}
    training = Training(tmp_path, "owner", state, vote, 3)
    for step in training.steps(11, save_every=2):
        seen[step] = list_saved(tmp_path)
    assert seen == {3: [], 4: [4], 5: [4], 6: [4, 6], 7: [4, 6], 8: [6, 8], 9: [6, 8], 10: [8, 10]}
    assert list_saved(tmp_path) == [11]
    assert (state.restored, vote.events) == (1, ["listen", "stop"])
    assert list(training.steps(11, save_every=2)) == []


def test_a_vote_that_passes_saves_and_ends(tmp_path):
    seen = []
    with pytest.raises(SystemExit) as raised:
        seen.extend(Training(tmp_path, "owner", State(), Vote(3), 0).steps(9, save_every=5))
    assert (raised.value.code, list_saved(tmp_path)) == (143, [3])


def test_a_loop_that_is_left_saves_nothing_and_handles_sigterm_no_longer(tmp_path):
    vote = Vote()
    for step in Training(tmp_path, "owner", State(), vote, 0).steps(9, save_every=1):
        if step == 1:
            break
    assert (list_saved(tmp_path), vote.events) == ([1], ["listen", "stop"])


def test_files_of_an_earlier_save_of_the_same_step_are_removed(tmp_path):
    (tmp_path / "checkpoint-2").mkdir()
    (tmp_path / "checkpoint-2/other_rank").write_text("old")
    list(Training(tmp_path, "owner", State(), Vote(), 0).steps(2, save_every=5))
    assert sorted(path.name for path in (tmp_path / "checkpoint-2").iterdir()) == ["trainjob_complete", "weights"]


def test_a_training_without_an_owner_saves_nothing(tmp_path):
    vote = Vote(1)
    assert list(Training(tmp_path, "", State(), vote, 0).steps(3, save_every=1)) == [0, 1, 2]
    assert list_saved(tmp_path) == []


def test_save_every_must_be_positive(tmp_path):
    with pytest.raises(ValueError, match="save_every is 0: it must be at least 1"):
        Training(tmp_path, "owner", State(), Vote(), 0).steps(3, save_every=0)


def test_logged_values_are_progress(tmp_path, capsys):
    training = Training(tmp_path, "", State(), Vote(), 1)
    for _ in training.steps(4, save_every=1):
        training.log(loss=0.5, grad_norm=float("nan"))
    training.log(accuracy=0.75)
    parser = TransformersLogParser()
    found = [parser.feed(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each.step, each.total, each.loss) for each in found] == [
        (2, 4, 0.5),
        (3, 4, 0.5),
        (4, 4, 0.5),
        (4, 4, 0.5),
    ]
    assert [each.metrics for each in found] == [{}, {}, {}, {"accuracy": 0.75}]
    other = Training(tmp_path, "", State(), Vote(is_first=False), 0)
    for _ in other.steps(1, save_every=1):
        other.log(loss=1.0)
    assert capsys.readouterr().out == ""


def test_the_module_needs_torch_only_when_it_is_used(tmp_path, monkeypatch):
    code = "import sys, trainjob.checkpoint; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
    original = builtins.__import__

    def refuse(name, *arguments, **options):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match="needs PyTorch: use an image that contains torch"):
        resume_training(tmp_path)
