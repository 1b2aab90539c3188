"""Implementation of `trainjob.spec.framework.Framework` for frameworks that train the model of a workspace."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.transformers_config import TransformersConfig
from trainjob.packing import program_command
from trainjob.spec import CustomTrainerContainer, FineTune, FrameworkConfig
from trainjob.spec.base import invalid_field

PROGRAM_DEPENDENCIES = (
    "trainjob.frameworks.fine_tuning",
    "trainjob.frameworks.checkpoint_owner",
    "trainjob.frameworks.copier_process",
    "trainjob.frameworks.durable_files",
    "trainjob.frameworks.folder_lease",
    "trainjob.frameworks.input_identity",
    "trainjob.frameworks.packed_code",
    "trainjob.programs.pip_installation",
    "trainjob.frameworks.transformers",
    "trainjob.programs.fetch.folder",
    "trainjob.programs.fetch.record",
    "trainjob.heartbeats",
    "trainjob.job_variables",
    "trainjob.credentials",
    "trainjob.errors",
)
"""Names of the modules that a program in the pod imports, besides its own package."""
_MODEL_NAME = re.compile(r"[\w][\w./:@+-]{0,127}", re.ASCII)


def _get_image(step: FineTune) -> str | None:
    return step.image


def _find_nothing(step: FineTune, config: Any) -> Iterable[Problem]:  # noqa: ARG001 - as other functions in its place
    return ()


@dataclass(frozen=True)
class WorkspaceFramework:
    """A framework; see [trainjob.spec.framework.Framework][] for the methods.

    Attributes:
        title: name of the framework for messages.
        config_class: class of the framework's configuration.
        program: name of the package that runs in the pod.
        build_arguments: function that returns the program's arguments for a step, its configuration and the
            owner of the checkpoints.
        find_image: function that returns the image of a step; None means the runtime's.
        find_missing: function that returns what a step with a workspace and this configuration lacks.
        dependencies: names of further modules that the program imports.
    """

    title: str
    config_class: type[TransformersConfig]
    program: str
    build_arguments: Callable[[FineTune, Any, str], list[str]]
    find_image: Callable[[FineTune], str | None] = _get_image
    find_missing: Callable[[FineTune, Any], Iterable[Problem]] = _find_nothing
    dependencies: tuple[str, ...] = ()

    def canonical_model_name(self, name: str) -> str:
        """Return the name unchanged: the weights are in `model_path`, and the name is metadata."""
        if not _MODEL_NAME.fullmatch(name):
            characters = "letters, digits and . / : @ + - _, such as llama3.2-1b"
            raise invalid_field("", name, f"with {self.title} it is a free name of 1 to 128 {characters}")
        return name

    def check_step(self, step: FineTune) -> None:
        """Refuse a step without a workspace, or without something that the framework needs."""
        config = self._to_config(step.config)
        if step.workspace is None:
            fetch = "fetch the model with InitializeModel and the dataset with InitializeDataset"
            raise invalid_field("workspace", None, f"{self.title} needs a workspace: {fetch}")
        if step.resume_from is not None and config.deepspeed:
            rule = (
                "DeepSpeed restores the old hyperparameters with its state: leave out deepspeed, or use fsdp if "
                "the framework has it"
            )
            raise invalid_field("resume_from", step.resume_from, rule)
        if step.resume_from is not None and not config.saves_checkpoints:
            rule = "the training must save checkpoints: leave out save_strategy='no' and save_only_model"
            raise invalid_field("resume_from", step.resume_from, rule)
        if step.checkpoint_uri is not None and not config.saves_checkpoints:
            rule = "the training must save checkpoints: leave out save_strategy='no' and save_only_model"
            raise invalid_field("checkpoint_uri", step.checkpoint_uri, rule)
        if problems := list(self.find_missing(step, config)):
            raise InvalidSpec(problems)

    def check_builtin(self, config: FrameworkConfig, model: str, field: str) -> None:  # noqa: ARG002 - the interface's
        """Refuse every configuration, because no runtime contains the framework."""
        rule = f"no runtime of the Trainer contains {self.title} (Trainer 2.3): use FineTune with a workspace"
        raise invalid_field(field, f"a {type(config).__name__}", rule)

    def can_resume(self, step: FineTune) -> bool:
        """Return whether the training saves checkpoints with the optimizer's state."""
        return self._to_config(step.config).saves_checkpoints

    def build_trainer(self, step: FineTune, run: str) -> CustomTrainerContainer:
        """Return the container of a training."""
        config = self._to_config(step.config)
        return CustomTrainerContainer(
            image=self.find_image(step),
            command=tuple(
                program_command(self.program, *PROGRAM_DEPENDENCIES, *self.dependencies, source=step.program)
            ),
            args=tuple(self.build_arguments(step, config, run if step.can_resume else "")),
            num_nodes=config.max_nodes or 1,
            num_proc_per_node=config.processes_per_node,
            resources_per_node=config.resources_per_node,
        )

    def build_builtin_arguments(self, config: FrameworkConfig, dataset: str) -> list[str]:  # noqa: ARG002
        """Raise TypeError, because no runtime contains the framework."""
        raise TypeError(f"no runtime of the Trainer runs a {type(config).__name__}")

    def _to_config(self, config: FrameworkConfig) -> TransformersConfig:
        if not isinstance(config, self.config_class):
            raise TypeError(f"a {type(config).__name__} is not a {self.config_class.__name__}")
        return config
