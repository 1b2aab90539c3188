"""The interface of a training framework: what a request needs to know of the program that trains.

`trainjob.frameworks` contains the frameworks. They import `trainjob.spec`, so this module finds them by name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from pydantic import BeforeValidator, Field, SerializeAsAny

from trainjob.spec.base import Spec, refuse
from trainjob.spec.resources import Resources, gpus

if TYPE_CHECKING:
    from trainjob.spec.steps import FineTune
    from trainjob.spec.trainers import CustomTrainerContainer

_MODULES = {"torchtune": "trainjob.frameworks.torchtune.framework"}
_DEFAULT = "torchtune"


class FrameworkConfig(Spec):
    """The configuration of a training with one framework; each framework has a class of its own.

    Attributes:
        framework: name of the framework.
        num_nodes: nodes to train on; None means one, or the runtime's number.
        num_proc_per_node: training processes on each node; None means one for each GPU, or one.
        resources_per_node: what each node needs, such as `{"gpu": 2, "memory": "64Gi"}`.
    """

    framework: ClassVar[str]

    num_nodes: int | None = Field(default=None, ge=1)
    num_proc_per_node: int | None = Field(default=None, ge=1)
    resources_per_node: Resources | None = None

    @property
    def processes(self) -> int:
        """Training processes on each node: the given number, or one for each GPU, or one."""
        return self.num_proc_per_node or max(1, gpus(self.resources_per_node))


class Framework(Protocol):
    """A training framework, as validation and manifests see it; its configuration has the same framework."""

    @property
    def config(self) -> type[FrameworkConfig]:
        """Class of its configuration."""

    def model_name(self, name: str) -> str:
        """Return the model's usual name.

        Raises:
            InvalidSpec: the framework can't train it.
        """

    def check(self, step: FineTune) -> None:
        """Refuse what the framework can't run.

        Raises:
            InvalidSpec: with the field and the rule.
        """

    def check_builtin(self, config: FrameworkConfig, model: str, field: str) -> None:
        """Refuse what the framework can't run as the built-in trainer of a runtime.

        Args:
            config: configuration of a `BuiltinTrainer`.
            model: the model that the runtime is named for.
            field: the field that holds the configuration, for the error.

        Raises:
            InvalidSpec: with the field and the rule.
        """

    def can_resume(self, step: FineTune) -> bool:
        """Return whether an attempt can continue from a checkpoint of an earlier one."""

    def trainer(self, step: FineTune, run: str) -> CustomTrainerContainer:
        """Return the container that trains over a workspace, without environment variables.

        Args:
            step: a step with a workspace.
            run: identifies the run: the same text in all its attempts. Empty disables resuming.
        """

    def builtin_arguments(self, config: FrameworkConfig, dataset: str) -> list[str]:
        """Return the arguments of a runtime's built-in trainer.

        Args:
            config: configuration of a `BuiltinTrainer`.
            dataset: folder or file with the rows, as an argument of a container.
        """


def framework_of(config: FrameworkConfig) -> Framework:
    """Return the framework that a configuration is for."""
    return _load(config.framework)


def _load(name: str) -> Framework:
    framework: Framework = importlib.import_module(_MODULES[name]).FRAMEWORK
    return framework


def default_config() -> FrameworkConfig:
    """Return the configuration of a request that gives none."""
    return _load(_DEFAULT).config()


def _checked_config(given: Any) -> FrameworkConfig:
    """Return the configuration for itself, a dict of its fields, or an object with the same attributes."""
    if type(given) is FrameworkConfig:
        raise refuse("", given, "give a framework's own class, such as TorchTuneConfig")
    return given if isinstance(given, FrameworkConfig) else _load(_DEFAULT).config.of(given)


FrameworkConfigField = Annotated[SerializeAsAny[FrameworkConfig], BeforeValidator(_checked_config)]
"""A configuration of any framework; a dict, or the Kubeflow SDK's object, is TorchTune's."""
