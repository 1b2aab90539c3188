"""Checkpoint of another training in a request: its forms, and where it is refused."""

from __future__ import annotations

import json

import pytest

from trainjob import CustomTrainer, FineTune, InvalidSpec, ResumeFrom, TorchTuneConfig, TrainJob, TRLConfig
from trainjob.manifest import to_trainjob, weight_fields
from trainjob.manifest.tracking import list_parameters


def fine_tune(resume_from, config=None, **fields):
    config = config or TRLConfig(method="sft")
    return FineTune(**{"model": "m", "workspace": "w", **fields}, config=config, resume_from=resume_from)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (400, ResumeFrom(step=400)),
        (" 400 ", ResumeFrom(step=400)),
        ("/workspace/output/a/", ResumeFrom(folder="output/a")),
        (
            {"folder": "output/a/checkpoint-4", "run": "r", "step": ""},
            ResumeFrom(folder="output/a/checkpoint-4", run="r"),
        ),
        ({"step": "4"}, ResumeFrom(step=4)),
        ({}, ResumeFrom()),
        ("", None),
        (None, None),
    ],
)
def test_a_step_and_a_folder_have_short_forms(given, expected):
    assert fine_tune(given).resume_from == expected


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (-1, "resume_from.step"),
        ("../model", "resume_from.folder"),
        ("/etc", "resume_from.folder"),
        ("/workspace", "resume_from.folder"),
        (1.5, "resume_from"),
        (True, "resume_from"),
        ({"folder": "/workspaces/a"}, "resume_from.folder"),
        ({"steps": 4}, "resume_from.steps"),
    ],
)
def test_a_wrong_value_is_refused(given, field):
    with pytest.raises(InvalidSpec) as raised:
        fine_tune(given)
    assert raised.value.problems[0].field == field


@pytest.mark.parametrize(
    "fields",
    [
        {"resume": False},
        {"config": TorchTuneConfig(), "model": "llama3.2-1b"},
        {"config": TRLConfig(method="sft", deepspeed={"zero_optimization": {"stage": 2}})},
        {"config": TRLConfig(method="sft", save_strategy="no")},
        {
            "config": TorchTuneConfig(),
            "model": "llama3.2-1b",
            "workspace": None,
            "dataset": {"storage_uri": "hf://a/b"},
            "model_initializer": {"storage_uri": "hf://a/b"},
        },
    ],
)
def test_a_request_that_cannot_start_from_a_checkpoint_is_refused(fields):
    with pytest.raises(InvalidSpec) as raised:
        fine_tune(4, **fields)
    assert [problem.field for problem in raised.value.problems] == ["resume_from"]


def test_a_function_must_be_able_to_resume():
    with pytest.raises(InvalidSpec, match="resume=True"):
        CustomTrainer(func=fine_tune, resume_from=4)


def test_it_makes_another_training_and_reaches_the_pod():
    step = fine_tune({"folder": "output/a", "step": 4, "run": "r"})
    assert weight_fields(step) == {
        **weight_fields(fine_tune(None)),
        "resume_from.folder": "output/a",
        "resume_from.step": 4,
        "resume_from.run": "r",
    }
    job = to_trainjob(step, run="digest", run_name="nightly-2")
    tracked = {"resume_from.folder": "output/a", "resume_from.step": 4, "resume_from.run": "r"}
    assert list_parameters(step) == {**list_parameters(fine_tune(None)), **tracked}
    owner = json.loads(job.trainer.args[job.trainer.args.index("--run") + 1])
    assert owner["resume_from"] == {"folder": "/workspace/output/a", "step": 4, "run": "r"}
    assert (owner["run"], owner["run_name"]) == ("digest", "nightly-2")
    function = TrainJob(trainer=CustomTrainer(func=fine_tune, resume=True, resume_from=4), workspace="w")
    owner = json.loads(to_trainjob(function, run="digest").trainer.env["TRAINJOB_RUN"])
    assert owner["resume_from"] == {"step": 4}
    assert owner["fields"]["trainer.resume_from.step"] == 4
