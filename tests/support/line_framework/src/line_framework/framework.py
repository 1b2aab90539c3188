"""Implementation of `trainjob.spec.framework.Framework`."""

from __future__ import annotations

from importlib import resources

from line_framework.config import LineConfig
from trainjob.spec import CustomTrainerContainer, FineTune, FrameworkConfig
from trainjob.spec.base import invalid_field
from trainjob.spec.framework import Framework
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
        program = resources.files("line_framework").joinpath("program.py").read_text("utf-8")
        output = f"{WORKSPACE}/output/{step.output_path}".rstrip("/")
        return CustomTrainerContainer(
            image=step.image,
            command=("python", "-c", program),
            args=(str(config.steps), str(config.learning_rate), output, run if step.can_resume else ""),
            resources_per_node=config.resources_per_node,
        )

    def build_builtin_arguments(self, config: FrameworkConfig, dataset: str) -> list[str]:
        raise TypeError("no runtime contains this framework")


FRAMEWORK: Framework = _LineFramework()
