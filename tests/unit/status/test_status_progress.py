"""Tests of the progress in log lines, as TorchTune 0.6.1 and the fetch program write them."""

from __future__ import annotations

import pytest

from trainjob.frameworks.log_parser import JobLogParser
from trainjob.status import Progress, read_trainer_status
from trainjob.status.watchdog import RankSteps, StepReport

FRAME = "2|84|Loss: 0.2017218917608261: 100%|██████████| 42/42 [00:00<00:00, 78.82it/s]"


def parse_progress(*lines):
    reader = JobLogParser()
    return [progress for line in lines if (progress := reader.feed(line))]


def test_a_frame_with_the_configuration_before_it():
    [progress] = parse_progress("epochs: 4", FRAME)
    assert progress == Progress(step=84, total=168, epoch=2, epochs=4, loss=0.2017218917608261)
    assert progress.percent == 50.0
    assert str(progress) == "step 84/168 (50 %), epoch 2/4, loss 0.2017"


def test_without_the_configuration_the_total_is_unknown():
    [progress] = parse_progress(FRAME)
    assert (progress.total, progress.percent) == (None, None)


def test_a_step_counts_once_and_never_goes_back():
    frames = [FRAME.replace("|84|", f"|{step}|") for step in (43, 43, 44, 45, 44)]
    assert [progress.step for progress in parse_progress("epochs: 4", *frames)] == [43, 44, 45]


def test_steps_of_a_resumed_training_are_counted_from_its_beginning():
    """A resumed LoRA recipe counts its steps from 1 again, here after two of four epochs."""
    frames = [f"{epoch}|{step}|Loss: 0.5: 2%|█| 1/42 [" for epoch, step in ((3, 1), (3, 42), (4, 43), (4, 84))]
    found = parse_progress("epochs: 4", *frames)
    assert [progress.step for progress in found] == [85, 126, 127, 168]
    assert found[-1].percent == 100
    assert [progress.step for progress in parse_progress("3|7|Loss: 0.5:   0%|| 0/0 [")] == [7]


def test_metric_lines_and_a_loss_that_is_not_finite():
    [progress] = parse_progress("Step 6 | loss:2.42 lr:0.003 tokens_per_second_per_gpu:7452.2 ")
    assert (progress.step, progress.loss) == (6, 2.42)
    [progress] = parse_progress(FRAME.replace("0.2017218917608261", "nan"))
    assert progress.loss is None


def test_other_lines_have_no_progress():
    assert parse_progress("INFO:torchtune.utils._logging:Model is initialized", "", "Loss: 3", "epochs: many") == []


def test_the_text_has_the_reward_and_only_known_numbers():
    assert str(Progress(step=0)) == "step 0/?"
    assert str(Progress(step=0, epoch=2, loss=0.5)) == "epoch 2/?, loss 0.5"
    assert str(Progress(step=0, total=8, epoch=1)) == "step 0/8 (0 %), epoch 1/?"
    assert str(Progress(step=4, metrics={"reward": 0.25, "learning_rate": 1.0})) == "step 4/?, reward 0.25"


def test_a_value_of_an_earlier_step_is_not_the_value_at_this_step():
    progress = Progress(step=4, loss=0.5, metrics={"reward": 1.0, "kl": 2.0}, carried=frozenset({"loss", "kl"}))
    assert [progress.value_at_step(name) for name in ("loss", "reward", "kl", "other")] == [None, 1.0, None, None]
    assert Progress(step=4, loss=0.5).value_at_step("loss") == 0.5


def trainer_status(percent=None, remaining=None, at="", **metrics):
    listed = [{"name": name, "value": value} for name, value in metrics.items()]
    fields = {"progressPercentage": percent, "estimatedRemainingSeconds": remaining, "lastUpdatedTime": at}
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    return {"status": {"trainerStatus": {**given, "metrics": listed}}}


def test_the_status_that_the_trainer_reports_is_progress():
    """The metrics are those of transformers' KubeflowCallback (5.23)."""
    numbers = {"loss": "0.5612", "learning_rate": "0.003", "epoch": "0.909", "current_epoch": "1.36"}
    found = read_trainer_status(trainer_status(**numbers, current_step="15", total_steps="44", grad_norm="nan"))
    assert found == Progress(15, 44, 2, None, 0.5612, metrics={"learning_rate": 0.003})
    end = read_trainer_status(trainer_status(100, loss="0.25", epoch="4.0", step="44", max_steps="44"))
    assert end == Progress(44, 44, 4, None, 0.25, reported_percent=100)
    assert read_trainer_status(trainer_status(total_steps="44")) is None
    assert read_trainer_status({}) is None


def test_a_percentage_and_a_remaining_time_are_progress_without_steps():
    """`update_trainjob_status` of the Kubeflow SDK (0.5) reports them."""
    found = read_trainer_status(trainer_status(50, 7200, "2026-01-01T00:00:00Z", accuracy="0.9"))
    assert (found.percent, found.remaining, found.reported_at) == (50, 7200, "2026-01-01T00:00:00Z")
    assert str(found) == "50 %, 2 h 0 min left"
    assert found.value_at_step("accuracy") is None
    assert Progress.from_dict(found.to_dict()) == found
    assert str(read_trainer_status(trainer_status(0))) == "0 %"
    assert [str(read_trainer_status(trainer_status(remaining=n))) for n in (45, 600)] == [
        "step 0/?, 45 s left",
        "step 0/?, 10 min left",
    ]


def test_a_percentage_that_is_no_number_is_left_out():
    for percent in ("50", True, -1, [], {}):
        assert read_trainer_status(trainer_status(percent)) is None


def test_the_progress_of_a_log_has_the_report_of_the_trainer():
    reported = read_trainer_status(trainer_status(40, 90, "2026-01-01T00:00:00Z", current_step="10", reward="1"))
    logged = Progress(step=12, total=20, loss=0.5, metrics={"kl": 0.1})
    merged = logged.with_report(reported)
    assert str(merged) == "step 12/20 (60 %), loss 0.5, reward 1, 2 min left"
    assert (merged.value_at_step("kl"), merged.value_at_step("reward")) == (0.1, None)
    behind = Progress(step=4, total=20, loss=0.9).with_report(reported)
    assert (behind.step, behind.total, behind.loss, behind.percent) == (10, 20, None, 50.0)
    assert logged.with_report(None) is logged


def test_invalid_values_that_the_trainer_reports_are_left_out():
    found = read_trainer_status(trainer_status(current_step="-3", total_steps="1e300", current_epoch="x", loss="0.5"))
    assert found == Progress(step=0, loss=0.5)
    assert read_trainer_status({"status": {"trainerStatus": {"metrics": [{"name": 3, "value": 4}, "x", {}]}}}) is None


@pytest.mark.parametrize("program", ["fetch", "export"])
def test_a_transfer_reports_the_percentage_of_bytes(program):
    reader = JobLogParser()
    lines = [
        f"{program}: 3 files, 4.0 MB, from hf://demo/tiny at c0ffee",
        f"{program}, reading: 2.0 MB of 4.0 MB (50 %), 1.0 MB/s, 0 min 2 s left",
        f"{program}: 1/3 config.json 12 B (0 %)",
        f"{program}: 2/3 a (9 %) strange name 1.0 MB (25 %, already there)",
        f"{program}: 3.0 MB of 4.0 MB (75 %), 1.0 MB/s, 0 min 1 s left",
        f"{program}: 3/3 model.safetensors 3.0 MB (100 %)",
        f'{program}: done {{"files": 3}}',
    ]
    found = [progress for line in lines if (progress := reader.feed(line))]
    assert [str(progress) for progress in found] == ["25 % transferred", "75 % transferred", "100 % transferred"]
    assert [progress.percent for progress in found] == [25, 75, 100]
    assert Progress(**found[0].to_dict()) == found[0]
    assert Progress(step=1).to_dict().keys() == {"step", "total", "epoch", "epochs", "loss"}


def test_a_training_after_a_fetch_in_one_log_reports_its_own_steps():
    found = parse_progress("fetch: 3/3 model.safetensors 3.0 MB (100 %)", "epochs: 4", FRAME)
    assert [str(progress) for progress in found] == ["100 % transferred", "step 84/168 (50 %), epoch 2/4, loss 0.2017"]


RANKS = RankSteps(3, 40, 0, 42, 4.0)


def test_the_steps_of_the_ranks_are_the_progress_of_a_training_that_logs_none():
    progress = JobLogParser().feed(StepReport(0, 7, RANKS).to_line())
    assert str(progress) == "step 42/?, rank 3 at step 40 and rank 0 at step 42, active 4 s ago"
    assert Progress.from_dict(progress.to_dict()) == progress


def test_a_logged_step_and_the_steps_of_the_ranks():
    parser = JobLogParser()
    line = str({"loss": 0.5, "step": 30, "max_steps": 100, "epoch": 0.3, "num_train_epochs": 1})
    assert parser.feed(line).ranks is None
    text = str(parser.feed(StepReport(0, 7, RANKS).to_line()))
    assert text.startswith("step 30/100 (30 %), epoch 1/1, loss 0.5, rank 3 ")
    assert parser.feed(line.replace("30,", "50,")).ranks == RANKS
    assert "active" not in str(Progress(100, 100, ranks=RANKS))
