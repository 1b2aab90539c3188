"""The field `watchdog` of trainings: its values, where it is refused, and what it does not change."""

from __future__ import annotations

import json

import pytest

from trainjob import (
    BuiltinTrainer,
    CustomTrainerContainer,
    FineTune,
    TorchTuneConfig,
    TrainJob,
    TRLConfig,
    Watchdog,
)
from trainjob.errors import InvalidSpec
from trainjob.manifest import spec_hash, to_trainjob
from trainjob.manifest.build import build_trainjob
from trainjob.manifest.supervision import describe_watchdog
from trainjob.manifest.training_identity import training_hash

STEP = FineTune(workspace="work", model="qwen3", config=TRLConfig(method="sft"))
JOB = TrainJob(trainer=CustomTrainerContainer(image="python", command=["python", "train.py"]))
WATCHED = {"silence": "10m", "action": "restart"}


def refusal(kind, **fields):
    with pytest.raises(InvalidSpec) as raised:
        kind(**fields)
    return raised.value.message


def test_the_limits_are_seconds_for_the_program():
    settings = describe_watchdog(Watchdog(silence="10m", first_step_within="2h", action="fail"))
    assert json.loads(settings.to_json()) == {"action": "fail", "first_step_within": 7200.0, "silence": 600.0}
    assert describe_watchdog(Watchdog()).to_json() == '{"action":"report"}'
    settings = describe_watchdog(Watchdog(slow_factor=2, min_gpu_percent=10))
    assert settings.to_json() == '{"action":"report","slow_factor":2.0,"min_gpu_percent":10.0}'


RANGES = [{"loss_factor": 0.5}, {"slow_factor": 1}, {"min_gpu_percent": 0}, {"min_gpu_percent": 101}]


@pytest.mark.parametrize("fields", RANGES)
def test_a_number_outside_of_its_range_is_refused(fields):
    [name] = fields
    assert f"watchdog.{name}" in refusal(TrainJob, trainer=JOB.trainer, watchdog=fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"silence": 0}, "watchdog.silence cannot be '0 s': it must be at least one second"),
        ({"action": "kill"}, "watchdog.action cannot be 'kill': it must be 'report', 'restart' or 'fail'"),
        ({"quiet": "1m"}, "watchdog.quiet: there is no field 'quiet' in Watchdog; its fields are "),
    ],
)
def test_a_wrong_value_is_refused(fields, message):
    assert refusal(TrainJob, trainer=JOB.trainer, watchdog=fields).startswith(message)


def test_a_training_whose_program_is_not_ours_is_refused():
    builtin = BuiltinTrainer(config=TorchTuneConfig())
    message = refusal(TrainJob, trainer=builtin, runtime="torchtune-llama3.2-1b", watchdog=WATCHED)
    assert "a BuiltinTrainer can't be watched" in message
    assert "because watchdog needs it" in refusal(TrainJob, trainer={"image": "python"}, watchdog=WATCHED)
    message = refusal(FineTune, model="llama3.2-1b", config=TorchTuneConfig(), dataset="hf://a/b", watchdog=WATCHED)
    assert "it is allowed only with a workspace" in message


@pytest.mark.parametrize("step", [STEP, JOB])
def test_a_watchdog_changes_no_identity(step):
    watched = step.model_copy(update={"watchdog": Watchdog(**WATCHED)})
    assert (spec_hash(watched), training_hash(watched)) == (spec_hash(step), training_hash(step))


@pytest.mark.parametrize("step", [STEP, JOB])
def test_the_command_begins_with_the_program(step):
    step = step.model_copy(update={"watchdog": Watchdog(**WATCHED)})
    manifest = build_trainjob(to_trainjob(step), name="job", namespace="team")
    command = manifest["spec"]["trainer"]["command"]
    assert command[4:7] == [
        "trainjob.frameworks.supervision",
        "--watchdog",
        '{"action":"restart","silence":600.0}',
    ]
