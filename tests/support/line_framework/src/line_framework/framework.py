"""Implementation of `trainjob.spec.framework.Framework`."""

from __future__ import annotations

from line_framework.config import LineConfig
from trainjob.packing import program_command
from trainjob.spec import CustomTrainerContainer, FineTune, FrameworkConfig
from trainjob.spec.base import invalid_field
from trainjob.spec.framework import Framework
from trainjob.spec.trainers import escape_expansion
from trainjob.spec.volumes import WORKSPACE


class _LineFramework:
    config_class = LineConfig

    def canonical_model_name(self, name: str) -> str:
        if name != "line":
            raise invalid_field("", name, "this framework trains only the model line")
        return name

    def check_step(self, step: FineTune) -> None:
        if step.workspace is None:
            raise invalid_field("workspace", None, "the line is written to a workspace: name its claim")

    def check_builtin(self, config: FrameworkConfig, model: str, field: str) -> None:
        raise invalid_field(field, "a LineConfig", "no runtime contains this framework: use FineTune")

    def can_resume(self, step: FineTune) -> bool:
        return True

    def build_trainer(self, step: FineTune, run: str) -> CustomTrainerContainer:
        config = step.config
        assert isinstance(config, LineConfig)
        options = {
            "--steps": str(config.steps),
            "--learning-rate": str(config.learning_rate),
            "--output": f"{WORKSPACE}/output/{step.output_path}".rstrip("/"),
            "--run": run if step.can_resume else "",
        }
        return CustomTrainerContainer(
            image=step.image,
            command=tuple(program_command("line_framework.pod")),
            args=tuple(escape_expansion(word) for option in options.items() for word in option),
            resources_per_node=config.resources_per_node,
        )

    def build_builtin_arguments(self, config: FrameworkConfig, dataset: str) -> list[str]:
        raise TypeError("no runtime contains this framework")


FRAMEWORK: Framework = _LineFramework()
