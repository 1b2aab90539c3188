"""The field `program` of the steps: where the code of a step's program comes from."""

from __future__ import annotations

import pytest

from trainjob import (
    ExportModel,
    FineTune,
    HuggingFaceDatasetInitializer,
    InitializeDataset,
    InitializeModel,
    InvalidSpec,
)
from trainjob.frameworks.output_folder import find_output_folder
from trainjob.manifest import spec_hash, to_trainjob
from trainjob.version import VERSION

IMAGE = "registry.example/steps:1"
UNSLOTH = {"framework": "unsloth", "method": "sft", "resources_per_node": {"gpu": 1}}
STEPS = {
    "dataset": (InitializeDataset, {"storage_uri": "hf://a/b"}),
    "model": (InitializeModel, {"storage_uri": "hf://a/b"}),
    "torchtune": (FineTune, {"model": "llama3.2-1b", "config": {"framework": "torchtune"}}),
    "trl": (FineTune, {"model": "m", "config": {"framework": "trl", "method": "sft"}}),
    "llamafactory": (FineTune, {"model": "m", "config": {"framework": "llamafactory", "method": "sft"}}),
    "unsloth": (FineTune, {"model": "m", "config": UNSLOTH}),
    "export": (ExportModel, {"destination": "hf://a/b"}),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_program_in_the_image_needs_an_image(name):
    kind, fields = STEPS[name]
    with pytest.raises(InvalidSpec) as refused:
        kind(workspace="w", program="image", **fields)
    [problem] = refused.value.problems
    assert problem.field == "image"
    assert f"trainjob {VERSION}" in problem.allowed
    assert kind(workspace="w", program="image", image=IMAGE, **fields).program == "image"


def test_a_fine_tuning_may_use_the_image_of_a_runtime():
    step = FineTune(
        model="llama3.2-1b", config={"framework": "torchtune"}, workspace="w", program="image", runtime="team-torchtune"
    )
    job = to_trainjob(step, run="run-1")
    assert job.trainer.image is None
    assert job.trainer.command[:3] == ("python", "-m", "trainjob.frameworks.torchtune.pod")


def test_a_fine_tuning_without_a_workspace_has_no_program():
    with pytest.raises(InvalidSpec, match="program cannot be 'image': it is allowed only with a workspace"):
        FineTune(
            model="llama3.2-1b",
            config={"framework": "torchtune"},
            dataset=HuggingFaceDatasetInitializer(storage_uri="hf://a/b"),
            program="image",
        )


@pytest.mark.parametrize("name", STEPS)
def test_the_program_is_not_part_of_the_requests_identity(name):
    kind, fields = STEPS[name]
    packed, image = (kind(workspace="w", image=IMAGE, program=program, **fields) for program in ("packed", "image"))
    assert spec_hash(packed) == spec_hash(image)
    commands = [to_trainjob(step, run="run-1").trainer for step in (packed, image)]
    assert commands[0].command[:2] == ("python", "-c")
    assert commands[1].command[:2] == ("python", "-m")
    assert commands[0].args == commands[1].args


@pytest.mark.parametrize("framework", ["trl", "llamafactory", "unsloth"])
def test_the_output_folder_of_a_training_is_found_in_both_commands(framework):
    config = {**UNSLOTH, "framework": framework}
    for program in ("packed", "image"):
        step = FineTune(model="m", workspace="w", output_path="a", config=config, image=IMAGE, program=program)
        trainer = to_trainjob(step).trainer
        assert find_output_folder([*trainer.command, *trainer.args]) == "/workspace/output/a"
