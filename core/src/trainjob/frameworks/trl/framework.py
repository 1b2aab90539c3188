"""TRL's implementation of `trainjob.spec.framework.Framework`."""

from __future__ import annotations

from trainjob.frameworks.trl.arguments import build_program_arguments
from trainjob.frameworks.trl.config import TRLConfig
from trainjob.frameworks.workspace_steps import PROGRAM_DEPENDENCIES, check_model_name, check_workspace
from trainjob.packing import program_command
from trainjob.spec import CustomTrainerContainer, FineTune, FrameworkConfig
from trainjob.spec.base import invalid_field
from trainjob.spec.framework import Framework


class _TRLFramework:
    """TRL; see [trainjob.spec.framework.Framework][] for the methods."""

    config_class = TRLConfig

    def canonical_model_name(self, name: str) -> str:
        """Return the name unchanged: the weights are in `model_path`, and the name is metadata."""
        return check_model_name(name, "TRL")

    def check_step(self, step: FineTune) -> None:
        _to_trl_config(step.config)
        check_workspace(step, "TRL")

    def check_builtin(self, config: FrameworkConfig, model: str, field: str) -> None:  # noqa: ARG002 - the interface's
        rule = "no runtime of the Trainer contains TRL (Trainer 2.3): use FineTune with a workspace"
        raise invalid_field(field, f"a {type(config).__name__}", rule)

    def can_resume(self, step: FineTune) -> bool:
        """Return whether the training saves checkpoints with the optimizer's state."""
        return _to_trl_config(step.config).saves_checkpoints

    def build_trainer(self, step: FineTune, run: str) -> CustomTrainerContainer:
        config = _to_trl_config(step.config)
        return CustomTrainerContainer(
            image=step.image,
            command=tuple(program_command("frameworks.trl.pod", *PROGRAM_DEPENDENCIES, source=step.program)),
            args=tuple(build_program_arguments(step, config, run if step.can_resume else "")),
            num_nodes=config.num_nodes or 1,
            num_proc_per_node=config.processes_per_node,
            resources_per_node=config.resources_per_node,
        )

    def build_builtin_arguments(self, config: FrameworkConfig, dataset: str) -> list[str]:  # noqa: ARG002
        raise TypeError(f"no runtime of the Trainer runs a {type(config).__name__}")


FRAMEWORK: Framework = _TRLFramework()


def _to_trl_config(config: FrameworkConfig) -> TRLConfig:
    if not isinstance(config, TRLConfig):
        raise TypeError(f"a {type(config).__name__} is not a TRLConfig")
    return config
