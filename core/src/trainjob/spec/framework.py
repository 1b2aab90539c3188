"""Interface of a training framework, as requests use it.

Frameworks import `trainjob.spec`, so this module loads them by name; see [trainjob.framework_modules][].
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol

from pydantic import BeforeValidator, SerializeAsAny, model_validator
from typing_extensions import Self, get_protocol_members

from trainjob.errors import InvalidSpec
from trainjob.framework_modules import GROUP, list_entry_points, list_modules, list_own_frameworks
from trainjob.spec import framework_packages
from trainjob.spec.base import invalid_field
from trainjob.spec.nodes import TrainingNodes
from trainjob.spec.resources import count_gpus

if TYPE_CHECKING:
    from trainjob.spec.steps import FineTune
    from trainjob.spec.trainers import CustomTrainerContainer


class FrameworkConfig(TrainingNodes):
    """Base class of a training's configuration; each framework has its own subclass.

    Attributes:
        framework: name of the framework; for one of another package, the name of its entry point.
    """

    framework: ClassVar[str]
    usage: ClassVar[str] = ""
    """Line for a request without a framework: the text to write, and the models that it trains; may be empty."""
    operational_fields: ClassVar[tuple[str, ...]] = ("num_proc_per_node", "resources_per_node", "shrink_after")
    """Fields that do not change the result, by their paths; see `trainjob.manifest.training_hash`."""
    continued_fields: ClassVar[tuple[str, ...]] = ()
    """Fields that may also change while a training continues from its checkpoints; see `weight_fields` there."""
    step_fields: ClassVar[tuple[str, ...]] = ("model", "model_path", "dataset_path")
    """Fields of a `FineTune` that decide the weights."""

    @model_validator(mode="after")
    def _validate_samples(self) -> Self:
        if not isinstance(self.num_nodes, tuple):
            return self
        if self.samples_per_step is None:
            rule = "a range is not possible, because the samples of a step depend on the number of processes"
            raise invalid_field("num_nodes", self.num_nodes, rule)
        least, most = self.num_nodes
        if not self.allows_nodes(least):
            allowed = ", ".join(str(count) for count in range(1, most) if self.allows_nodes(count))
            rule = f"the samples of a step stay the same only with these minimums: {allowed}"
            raise invalid_field("num_nodes", self.num_nodes, rule)
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about defaults that differ from the framework's, for the log of a submission."""
        return ()

    @property
    def processes_per_node(self) -> int:
        """Number of training processes on each node: as given, else one for each GPU, else one."""
        return self.num_proc_per_node or max(1, count_gpus(self.resources_per_node))

    @property
    def samples_per_step(self) -> int | None:
        """Samples of each optimizer step, in all processes together; None if unknown."""
        return None


class Framework(Protocol):
    """Interface of a training framework for validation and manifests."""

    @property
    def config_class(self) -> type[FrameworkConfig]:
        """Class of the framework's configuration."""

    def canonical_model_name(self, name: str) -> str:
        """Return the usual name of a model.

        Raises:
            InvalidSpec: the framework cannot train the model.
        """

    def check_step(self, step: FineTune) -> None:
        """Refuse a step that the framework cannot run.

        Raises:
            InvalidSpec: the framework cannot run the step; the error names the field and the rule.
        """

    def check_builtin(self, config: FrameworkConfig, model: str, field: str) -> None:
        """Refuse a configuration that the built-in trainer of a runtime cannot run.

        Args:
            config: configuration of a `BuiltinTrainer`.
            model: the model in the runtime's name.
            field: name of the field that contains the configuration, for the error.

        Raises:
            InvalidSpec: the trainer cannot run the configuration; the error names the field and the rule.
        """

    def can_resume(self, step: FineTune) -> bool:
        """Return whether an attempt can continue from a checkpoint of an earlier one."""

    def build_trainer(self, step: FineTune, run: str) -> CustomTrainerContainer:
        """Return the container of a training in a workspace, without environment variables.

        Args:
            step: a step with a workspace.
            run: owner of the checkpoints, the same text in all attempts; empty disables resuming.
        """

    def build_builtin_arguments(self, config: FrameworkConfig, dataset: str) -> list[str]:
        """Return the arguments of a runtime's built-in trainer.

        Args:
            config: configuration of a `BuiltinTrainer`.
            dataset: folder or file with the dataset's rows, as an argument of a container.
        """


def get_framework(config: FrameworkConfig) -> Framework:
    """Return the framework of a configuration.

    Raises:
        InvalidSpec: the framework is not one of `trainjob`, and no installed package adds it.
    """
    return _load_framework(config.framework)


def _load_framework(name: str) -> Framework:
    framework: Framework
    if name in list_own_frameworks():
        framework = importlib.import_module(f"trainjob.frameworks.{name}.framework").FRAMEWORK
    else:
        framework = framework_packages.load_framework(name, _find_problem)
    return framework


def _find_problem(name: str, framework: Any) -> str:
    """Return how an object differs from the interface; empty if it implements it."""
    if missing := sorted(member for member in get_protocol_members(Framework) if not hasattr(framework, member)):
        return f"lacks {', '.join(missing)} of trainjob.spec.framework.Framework"
    config = framework.config_class
    if not (isinstance(config, type) and issubclass(config, FrameworkConfig)):
        return "has a config_class that is not a subclass of FrameworkConfig"
    if getattr(config, "framework", None) != name:
        return f"has a config_class whose attribute framework is not {name!r}"
    return ""


def names_missing_package(config: Any) -> bool:
    """Return whether a dict names a framework of a package that is not installed here.

    A misspelled name is such a framework, too.
    """
    name = config.get("framework") if isinstance(config, Mapping) else None
    return isinstance(name, str) and name not in list_own_frameworks() and not framework_packages.is_installed(name)


def _validate_config(value: Any) -> FrameworkConfig:
    """Return the configuration from an instance, a dict, or an object with its attributes.

    A dict names its framework under `framework`, unless only one framework has its fields.

    Raises:
        InvalidSpec: a field is invalid, the framework is missing or not known, or the value is the base class itself.
    """
    return _to_config(value, _find_frameworks_with)


def _validate_builtin_config(value: Any) -> FrameworkConfig:
    """Return the configuration of a built-in trainer; see [_validate_config][].

    The framework is that of the built-in trainers, if there is only one.
    """
    return _to_config(value, _find_builtin_frameworks)


def _to_config(value: Any, find_frameworks: Callable[[Any], Sequence[str]]) -> FrameworkConfig:
    if value is None or type(value) is FrameworkConfig:
        raise invalid_field("", None, _describe_choice())
    if isinstance(value, FrameworkConfig):
        _load_framework(value.framework)  # so that an error names this field
        return value
    name = None
    if isinstance(value, Mapping) and "framework" in value:
        name = value["framework"]
        value = {field: given for field, given in value.items() if field != "framework"}
    if name is None:
        found = find_frameworks(value)
        if len(found) != 1:
            raise invalid_field("framework", None, _describe_choice())
        name = found[0]
    if not isinstance(name, str):
        raise invalid_field(
            "framework", name, f"it must be the name of a framework, such as {list_own_frameworks()[0]}"
        )
    return _load_framework(name).config_class.from_object(value)


def _find_builtin_frameworks(_: Any) -> list[str]:
    """Return the frameworks that are a built-in trainer, whatever the fields are."""
    modules = list_modules("builtin_trainer")
    return [name for name in list_own_frameworks() if f"{GROUP}.{name}.builtin_trainer" in modules]


def _find_frameworks_with(value: Any) -> list[str]:
    """Return the frameworks that have all fields of a dict or of an object of the SDK."""
    if not isinstance(value, Mapping) and not hasattr(value, "__dict__"):
        return []
    fields = value if isinstance(value, Mapping) else vars(value)
    classes = {name: _load_framework(name).config_class for name in list_own_frameworks()}
    return [name for name, config_class in classes.items() if fields.keys() <= config_class.model_fields.keys()]


def find_config_field(name: str) -> str:
    """Return the path of a configuration's field by any of its names; empty if unknown."""
    classes = [_load_framework(each).config_class for each in list_own_frameworks()]
    fields = (name if name in each.model_fields else each.find_field(name) for each in classes)
    found = min(filter(None, fields), key=lambda field: field.count("."), default="")
    return f"config.{found}" if found else ""


def _describe_choice() -> str:
    """Return the rule of a missing framework, with the line to write for each kind of model."""
    own = list_own_frameworks()
    others = sorted({entry.name for entry in list_entry_points()} - {*own})
    return "\n  ".join(["choose the framework:", *filter(None, map(_find_usage, (*own, *others)))])


def _find_usage(name: str) -> str:
    """Return the line of a framework; empty if its package cannot be used.

    A request that names the framework gets the reason.
    """
    try:
        return _load_framework(name).config_class.usage
    except InvalidSpec:
        return ""


FrameworkConfigField = Annotated[SerializeAsAny[FrameworkConfig], BeforeValidator(_validate_config)]
"""A configuration of any framework; a dict names its framework under `framework`."""
BuiltinConfigField = Annotated[SerializeAsAny[FrameworkConfig], BeforeValidator(_validate_builtin_config)]
"""A configuration of a runtime's built-in trainer."""
