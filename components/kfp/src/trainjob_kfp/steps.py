"""From a component's arguments to a step: what is empty or 0 was not given, and what is set on the task comes along."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from trainjob.spec import (
    CustomTrainerContainer,
    ExportModel,
    FineTune,
    InitializeDataset,
    InitializeModel,
    TorchTuneConfig,
    TrainJob,
)
from trainjob_kfp import task_settings
from trainjob_kfp.task_settings import TaskConfig

_TORCHTUNE = ("epochs", "batch_size", "learning_rate")
_CONTAINER = ("image", "command", "args", "num_nodes", "num_proc_per_node", "env")


def initialize_dataset(arguments: Mapping[str, Any], task: TaskConfig | None) -> InitializeDataset:
    """The step of the component `initialize_dataset`; see [fine_tune][] for what is raised."""
    return InitializeDataset(**_resources("resources", arguments, task), **_given(arguments, task))


def initialize_model(arguments: Mapping[str, Any], task: TaskConfig | None) -> InitializeModel:
    """The step of the component `initialize_model`; see [fine_tune][] for what is raised."""
    return InitializeModel(**_resources("resources", arguments, task), **_given(arguments, task))


def export_model(arguments: Mapping[str, Any], task: TaskConfig | None) -> ExportModel:
    """The step of the component `export_model`; see [fine_tune][] for what is raised."""
    return ExportModel(**_resources("resources", arguments, task), **_given(arguments, task))


def fine_tune(arguments: Mapping[str, Any], task: TaskConfig | None) -> FineTune:
    """The step of the component `fine_tune`.

    Args:
        arguments: the component's arguments by name.
        task: what is set on the task.

    Raises:
        InvalidSpec: with every rule that is broken.
    """
    given = _given(arguments, task)
    fields = dict(given.pop("config", {}))
    fields |= {name: given.pop(name) for name in _TORCHTUNE if name in given}
    fields |= _resources("resources_per_node", fields, task)
    fields["overrides"] = [*fields.get("overrides", ()), *given.pop("overrides", ())]
    if rank := given.pop("lora_rank", None):
        fields["peft_config"] = {**(fields.get("peft_config") or {}), "lora_rank": rank}
    return FineTune(config=TorchTuneConfig(**fields), **given)


def train(arguments: Mapping[str, Any], task: TaskConfig | None) -> TrainJob:
    """The step of the component `train`; see [fine_tune][] for what is raised."""
    given = _given(arguments, task)
    container = {name: given.pop(name) for name in _CONTAINER if name in given}
    container |= _resources("resources_per_node", {"resources_per_node": given.pop("resources_per_node", {})}, task)
    return TrainJob(trainer=CustomTrainerContainer(**container), **given)


def _given(arguments: Mapping[str, Any], task: TaskConfig | None) -> dict[str, Any]:
    """The arguments that were given, with the task's environment and placement."""
    given = {name: value for name, value in arguments.items() if value}
    if environment := {**task_settings.environment(task), **given.get("env", {})}:
        given["env"] = environment
    if placement := task_settings.placement(task):
        given["placement"] = placement
    if seconds := given.pop("deadline_seconds", 0):
        given["deadline"] = timedelta(seconds=seconds)
    return given


def _resources(name: str, arguments: Mapping[str, Any], task: TaskConfig | None) -> dict[str, Any]:
    """The task's resources with the arguments' own, which count more, under this name; nothing when there are none."""
    found = {**task_settings.resources(task), **(arguments.get(name) or {})}
    return {name: found} if found else {}
