"""Tests of the progress in logs of transformers' Trainer.

The folder `logs` has complete logs of transformers 5.23 with TRL 1.16, and one of TorchTune 0.6.1. All are of the
demo's tiny model. `sft_container_runtime` was written as a container runtime does: a line of standard error appears
when it ends or has 16 KiB. `*_steps` have the numbers that this project's pods add.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.frameworks.log_parser import JobLogParser
from trainjob.frameworks.torchtune.log_parser import TorchTuneLogParser
from trainjob.frameworks.transformers_log_parser import TransformersLogParser, parse_logged_values
from trainjob.status import Progress

LOGS = Path(__file__).with_name("logs")
TRANSFORMERS = sorted(path.stem for path in LOGS.glob("*.txt") if path.stem != "torchtune")
LOSS = "{'loss': '4.625', 'grad_norm': '6.5', 'learning_rate': '0.0026', 'epoch': '0.3333'}"
EVALUATION = "{'eval_loss': '1.484', 'eval_runtime': '0.0151', 'epoch': '0.6667'}"
CLEARED = " " * 46


def read_frames(name):
    """Return the lines and frames of a log as the parser gets them."""
    lines = LOGS.joinpath(f"{name}.txt").read_bytes().decode().split("\n")
    return [frame for line in lines for frame in line.split("\r") if frame]


def parse(lines, parser=None):
    parser = parser or TransformersLogParser()
    return [progress for line in lines if (progress := parser.feed(line))]


def values(found, name):
    return {progress.step: value for progress in found if (value := progress.value_at_step(name)) is not None}


def bar(step, total=30, end=""):
    return f" 17%|█▋        | {step}/{total} [00:00<00:00, 48.23it/s]{end}"


def with_step(step, total=30, **more):
    numbers = {"loss": "0.5", "learning_rate": "0.001", **more, "epoch": f"{step * 2 / total:.4g}", "step": step}
    return str({**numbers, "max_steps": total, "num_train_epochs": 2})


def test_a_dict_with_its_step_is_the_complete_progress():
    [progress] = parse([with_step(10, grad_norm="1.2", num_tokens="1.2e+06")])
    metrics = {"learning_rate": 0.001, "grad_norm": 1.2, "num_tokens": 1.2e6}
    assert progress == Progress(step=10, total=30, epoch=1, epochs=2, loss=0.5, metrics=metrics)
    assert str(progress) == "step 10/30 (33 %), epoch 1/2, loss 0.5"


@pytest.mark.parametrize("name", ["sft_steps", "sft_bars"])
def test_curves_of_a_log_are_the_same_with_steps_and_with_bars(name):
    found = parse(read_frames(name))
    losses = {5: 4.625, 10: 2.182, 15: 1.317, 20: 0.9702, 25: 0.8328, 30: 0.7817}
    assert values(found, "loss") == losses
    assert values(found, "eval_loss") == {10: 1.484, 20: 0.8885, 30: 0.7907}
    last = found[-1]
    assert (last.step, last.total, last.epoch, last.loss) == (30, 30, 2, 0.7817)
    assert last.metrics["train_loss"] == 1.785
    assert last.metrics["eval_mean_token_accuracy"] == 0.5938


def test_bars_show_the_steps_between_two_dicts_without_a_loss_of_that_step():
    found = parse(read_frames("sft_bars"))
    between = [progress for progress in found if progress.step == 17]
    assert str(between[0]) == "step 17/30 (57 %), epoch 1/?, loss 1.317"
    assert {progress.value_at_step("loss") for progress in between} == {None}


def test_two_processes_report_each_step_once():
    found = parse(read_frames("sft_two_processes"))
    assert values(found, "loss") == {5: 4.469, 10: 2.034}
    assert found[-1].percent == 100


def test_rewards_are_metrics():
    found = parse(read_frames("grpo_steps"))
    assert values(found, "reward") == {5: 1.75, 10: 1.74}
    assert values(found, "eval_reward") == {5: 1.633, 10: 1.521}
    assert str(found[0]) == "step 5/10 (50 %), epoch 1/1, loss -6.258e-08, reward 1.75"
    assert values(parse(read_frames("dpo_steps")), "rewards/margins")[30] == 4.665


def test_without_steps_and_bars_the_step_is_not_known():
    found = parse(read_frames("grpo_printer"))
    assert [progress.step for progress in found] == [0] * 5
    assert str(found[-1]) == "epoch 1/?, loss 8.941e-08, reward 1.74"
    assert found[-1].metrics["train_runtime"] == 1.614
    assert values(found, "reward") == {}


def test_bars_that_arrive_late_give_no_step_to_a_loss():
    """Standard error arrives in blocks of 16 KiB, and the dicts long before their frames."""
    found = parse(read_frames("sft_container_runtime"))
    assert str(found[0]) == "epoch 1/?, loss 4.913"
    assert (found[-1].step, found[-1].total) == (900, 900)
    assert {step % 20 for step in values(found, "loss")} <= {0}
    assert {step % 100 for step in values(found, "eval_loss")} <= {0}
    steps = [progress.step for progress in found]
    assert len(set(steps)) > 100
    assert steps == sorted(steps)


def test_other_bars_are_not_the_trainers():
    others = [
        "Tokenizing train dataset: 100%|##########| 60/60 [00:00<00:00, 9.5it/s]",
        "Loading weights:   0%|          | 0/20 [00:00<?, ?it/s]",
        bar(3, total=7),
        CLEARED,
        bar(4, total=7),
    ]
    assert parse(others) == []
    evaluation = ["  0%|          | 1/2 [00:00<?, ?it/s]\x1b[A", CLEARED]
    found = parse([*others, LOSS, *evaluation, *others[:2], bar(5, total=7)])
    assert [progress.step for progress in found] == [0]


def test_a_bar_around_several_trainings_is_not_the_trainers():
    """tqdm redraws all bars, and the outer bar has no step done while the first training logs its steps."""
    first = [CLEARED, LOSS, bar(0, total=5), bar(5, end="\x1b[A")]
    second = [CLEARED, LOSS.replace("4.625", "4.5"), bar(1, total=5), bar(5, end="\x1b[A")]
    for log in ([*first, *second], [LOSS, *second[:1], *second[1:2], "", CLEARED, bar(1, total=5)]):
        assert {(progress.step, progress.total) for progress in parse(log)} == {(0, None)}


def test_a_dict_that_ends_a_cut_frame_is_read_without_a_step():
    found = parse([CLEARED, " 17%|█▋        | 5/30 [00" + LOSS, bar(2), CLEARED, bar(5), CLEARED, EVALUATION, bar(10)])
    assert [(progress.step, progress.loss) for progress in found] == [(0, 4.625), (5, 4.625), (5, 4.625), (10, 4.625)]
    assert values(found, "loss") == {}
    assert values(found, "eval_loss") == {10: 1.484}


def test_values_of_transformers_4_and_of_torchruns_tee_are_read():
    line = "{'loss': 0.5612, 'grad_norm': None, 'learning_rate': 5e-05, 'note': 'a, b', 'list': [1, 2], 'epoch': 2.5}"
    [progress] = parse(["[default0]:" + line])
    assert (progress.loss, progress.epoch, progress.metrics) == (0.5612, 3, {"learning_rate": 5e-05})


def test_values_that_are_not_finite_replace_the_earlier_ones():
    found = parse([with_step(5, grad_norm="1"), with_step(6, grad_norm="nan", loss="inf")])
    assert (found[0].loss, found[0].metrics["grad_norm"]) == (0.5, 1.0)
    assert found[1].loss is None
    assert "grad_norm" not in found[1].metrics


def test_after_a_restart_nothing_is_reported_until_new_steps():
    lines = [with_step(step, loss=str(step)) for step in (5, 10, 15, 5, 10, 15, 20)]
    assert [(progress.step, progress.loss) for progress in parse(lines)] == [(5, 5), (10, 10), (15, 15), (20, 20)]
    epochs = [LOSS.replace("0.3333", epoch).replace("4.625", loss) for epoch, loss in (("2", "3"), ("1", "9"))]
    assert [progress.loss for progress in parse([*epochs, epochs[0].replace("'2'", "'2.5'")])] == [3, 3]


def test_a_line_of_a_second_node_is_not_reported_again():
    assert len(parse([LOSS, LOSS, with_step(5), with_step(5), EVALUATION, EVALUATION])) == 3


@pytest.mark.parametrize(
    "line",
    [
        "{'loss': '0.5', 'learning_rate': '0.1'}",
        "{'epoch': '1', 'loss': '0.5'}",
        "{'epoch': 3, 'learning_rate': 0.001, 'batch_size': 8}",
        "{'loss': 'mse', 'epoch': 'three', 'learning_rate': '0.1'}",
        f"Configuration: {LOSS}",
        LOSS + " done",
        LOSS[:-1],
        "{'loss': {'loss': '0.5', 'learning_rate': '0.1', 'epoch': '1'}}",
        "{'train_runtime': __import__('os').system('true'), 'epoch': '1'}",
        "{" + ", ".join(f"'m{n}': '1'" for n in range(300)) + ", 'loss': '1', 'learning_rate': '1', 'epoch': '1'}",
    ],
)
def test_other_dicts_have_no_progress(line):
    assert parse_logged_values(line) is None
    assert parse([line]) == []


def test_the_number_and_the_names_of_metrics_are_limited():
    lines = [with_step(step, **{f"m{step}_{n}": "1" for n in range(100)}, **{"x" * 101: "1"}) for step in range(1, 9)]
    found = parse(lines)
    assert len(found) == 8
    assert len(found[-1].metrics) == 128
    assert max(map(len, found[-1].metrics)) <= 100
    assert found[-1].loss == 0.5


def test_a_log_of_one_framework_has_no_progress_for_the_other():
    assert parse(read_frames("torchtune")) == []
    found = parse(read_frames("torchtune"), JobLogParser())
    assert [progress.step for progress in found] == [1, 2, 3, 4, 5, 6]
    assert (found[-1].total, found[-1].epoch) == (6, 2)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_torchtunes_parser_finds_nothing_in_logs_of_transformers(name):
    frames = read_frames(name)
    assert parse(frames, TorchTuneLogParser()) == []
    assert parse(frames, JobLogParser()) == parse(frames) != []


PIECES = st.sampled_from(
    [LOSS, EVALUATION, CLEARED, bar(5), bar(6), bar(2, total=3), bar(1, end="\x1b[A"), "\x1b[A", ""]
)
NUMBERS = st.sampled_from(["'nan'", "'1e400'", "'-inf'", "1", "'0.5'", "True", "'" + "9" * 40 + "'", "[1, 2]", "None"])
NAMES = st.sampled_from(
    ["loss", "learning_rate", "epoch", "step", "max_steps", "num_train_epochs", "eval_runtime", "é"]
)
DICTS = st.lists(st.tuples(NAMES, NUMBERS), max_size=9).map(
    lambda items: "{" + ", ".join(f"'{name}': {number}" for name, number in items) + "}"
)
STEPS = st.builds(with_step, st.integers(0, 40), st.integers(1, 40))


@given(st.lists(PIECES | DICTS | STEPS | st.text() | st.lists(PIECES, max_size=3).map("".join), max_size=30))
def test_any_lines_have_valid_progress_whose_steps_never_go_back(lines):
    found = parse(lines)
    assert all(earlier.step <= later.step for earlier, later in pairwise(found))
    for progress in found:
        assert all(math.isfinite(value) for value in progress.metrics.values())
        assert progress.loss is None or math.isfinite(progress.loss)
        assert progress.carried <= {"loss", *progress.metrics}
        assert Progress.from_dict(progress.to_dict()) == progress
        assert str(progress)
