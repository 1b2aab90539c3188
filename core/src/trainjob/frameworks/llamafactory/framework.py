"""LLaMA-Factory's implementation of `trainjob.spec.framework.Framework`."""

from __future__ import annotations

from trainjob.frameworks.llamafactory.arguments import build_program_arguments
from trainjob.frameworks.llamafactory.config import LLaMAFactoryConfig
from trainjob.frameworks.workspace_steps import PROGRAM_DEPENDENCIES, check_model_name, check_workspace
from trainjob.packing import program_command
from trainjob.spec import CustomTrainerContainer, FineTune, FrameworkConfig
from trainjob.spec.base import invalid_field
from trainjob.spec.framework import Framework

_NAME = "LLaMA-Factory"


class _LLaMAFactoryFramework:
    """LLaMA-Factory; see [trainjob.spec.framework.Framework][] for the methods."""

    config_class = LLaMAFactoryConfig

    def canonical_model_name(self, name: str) -> str:
        """Return the name unchanged: the weights are in `model_path`, and the name is metadata."""
        return check_model_name(name, _NAME)

    def check_step(self, step: FineTune) -> None:
        _to_config(step.config)
        check_workspace(step, _NAME)

    def check_builtin(self, config: FrameworkConfig, model: str, field: str) -> None:  # noqa: ARG002 - the interface's
        rule = "no runtime of the Trainer contains LLaMA-Factory (Trainer 2.3): use FineTune with a workspace"
        raise invalid_field(field, f"a {type(config).__name__}", rule)

    def can_resume(self, step: FineTune) -> bool:
        """Return whether the training saves checkpoints with the optimizer's state."""
        return _to_config(step.config).saves_checkpoints

    def build_trainer(self, step: FineTune, run: str) -> CustomTrainerContainer:
        """Return the container of a training.

        Its image is LLaMA-Factory's own, unless the step names an image or a runtime.
        """
        config = _to_config(step.config)
        # The project publishes an image for each release (llamafactory 0.9.5, .github/workflows/docker.yml).
        default = None if step.runtime else f"docker.io/hiyouga/llamafactory:{config.llamafactory_version}"
        return CustomTrainerContainer(
            image=step.image or default,
            command=tuple(program_command("frameworks.llamafactory.pod", *PROGRAM_DEPENDENCIES, source=step.program)),
            args=tuple(build_program_arguments(step, config, run if step.can_resume else "")),
            num_nodes=config.num_nodes or 1,
            num_proc_per_node=config.processes_per_node,
            resources_per_node=config.resources_per_node,
        )

    def build_builtin_arguments(self, config: FrameworkConfig, dataset: str) -> list[str]:  # noqa: ARG002
        raise TypeError(f"no runtime of the Trainer runs a {type(config).__name__}")


FRAMEWORK: Framework = _LLaMAFactoryFramework()


def _to_config(config: FrameworkConfig) -> LLaMAFactoryConfig:
    if not isinstance(config, LLaMAFactoryConfig):
        raise TypeError(f"a {type(config).__name__} is not a LLaMAFactoryConfig")
    return config
