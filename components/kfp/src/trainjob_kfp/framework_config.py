"""Configuration of a training framework, from the arguments of its fine-tuning component.

A framework is given by its name. An import of its configuration class would embed its sources in every component.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainjob.errors import InvalidSpec, Problem


@dataclass(frozen=True)
class FrameworkArguments:
    """Arguments of a component that are fields of a framework's configuration.

    Attributes:
        framework: name of the framework.
        fields: path of the field by the name of the argument.
        accepts_others: whether `config` may name the framework of another package instead.
    """

    framework: str
    fields: Mapping[str, str]
    accepts_others: bool = False


TORCHTUNE_ARGUMENTS = FrameworkArguments(
    "torchtune",
    {
        "epochs": "epochs",
        "batch_size": "batch_size",
        "learning_rate": "learning_rate",
        "lora_rank": "peft_config.lora_rank",
        "overrides": "overrides",
    },
    accepts_others=True,
)
TRL_ARGUMENTS = FrameworkArguments(
    "trl",
    {
        "method": "method",
        "epochs": "epochs",
        "max_steps": "max_steps",
        "batch_size": "batch_size",
        "learning_rate": "learning_rate",
        "lora_rank": "peft_config.r",
        "columns": "columns",
        "reward_functions": "reward_functions",
        "teacher_path": "teacher_path",
        "arguments": "arguments",
    },
)
LLAMAFACTORY_ARGUMENTS = FrameworkArguments(
    "llamafactory",
    {
        "method": "method",
        "epochs": "epochs",
        "max_steps": "max_steps",
        "batch_size": "batch_size",
        "learning_rate": "learning_rate",
        "lora_rank": "peft_config.r",
        "template": "template",
        "columns": "columns",
        "arguments": "arguments",
    },
)
UNSLOTH_ARGUMENTS = FrameworkArguments(
    "unsloth",
    {
        "method": "method",
        "epochs": "epochs",
        "max_steps": "max_steps",
        "batch_size": "batch_size",
        "learning_rate": "learning_rate",
        "max_length": "max_length",
        "lora_rank": "peft_config.r",
        "load_in_4bit": "peft_config.load_in_4bit",
        "columns": "columns",
        "arguments": "arguments",
    },
)
_COMPONENTS = {  # for the framework of each name
    "trl": "fine_tune_trl",
    "llamafactory": "fine_tune_llamafactory",
    "unsloth": "fine_tune_unsloth",
}


def build_config(component: FrameworkArguments, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration, from a component's arguments.

    They are those in the argument `config`, and those with an argument of their own. Such an argument overrides the
    same field in `config`. Lists of both are joined, and so are mappings.

    Args:
        component: arguments of the component that belong to the framework.
        given: the given ones of these arguments, and `config`, by name.

    Raises:
        InvalidSpec: `config` names a framework that the component does not accept, or arguments of the component's own
            framework are given with another one.
    """
    config = dict(given.get("config", {}))
    if "framework" in config:
        _check_other_framework(component, config["framework"], given)
        return config
    for argument, path in component.fields.items():
        if argument in given:
            config = _merge(config, _nest(path, given[argument]))
    return {**config, "framework": component.framework}


def _check_other_framework(component: FrameworkArguments, name: Any, given: Mapping[str, Any]) -> None:
    if not component.accepts_others or name == component.framework or name in _COMPONENTS:
        rule = f"leave it out, because this component always uses {component.framework}"
        if component.accepts_others:
            others = " or ".join(f"the component {own} for {each}" for each, own in _COMPONENTS.items())
            rule = (
                f"this component uses {component.framework}, or the framework of another package: leave it out, or use "
                f"{others}"
            )
        raise InvalidSpec(Problem("config.framework", repr(name), rule))
    rule = f"it is an argument of {component.framework}: put the settings of {name} into config"
    if own := [argument for argument in component.fields if argument in given]:
        raise InvalidSpec([Problem(argument, repr(given[argument]), rule) for argument in own])


def name_arguments(error: InvalidSpec, component: FrameworkArguments, given: Mapping[str, Any]) -> InvalidSpec:
    """Return the error of a step with the component's names for the fields.

    The name of an argument replaces the path of its field in the configuration, unless the field was given in `config`.

    Args:
        error: the error; its paths start with `config.`.
        component: arguments of the component that belong to the framework.
        given: the given ones of these arguments, and `config`, by name.
    """
    in_config = given.get("config", {})
    names = {
        f"config.{path}": argument
        for argument, path in component.fields.items()
        if argument in given or path.partition(".")[0] not in in_config
    }
    return InvalidSpec([_rename_field(problem, names) for problem in error.problems], hint=error.hint)


def _rename_field(problem: Problem, names: Mapping[str, str]) -> Problem:
    for path, name in names.items():
        below = problem.field.removeprefix(path)
        if problem.field.startswith(path) and below[:1] in ("", ".", "["):
            return replace(problem, field=f"{name}{below}")
    return problem


def _nest(path: str, value: Any) -> dict[str, Any]:
    """Return a value as a field of nested dicts."""
    first, _, rest = path.partition(".")
    return {first: _nest(rest, value) if rest else value}


def _merge(old: Any, new: Any) -> Any:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{name: _merge(old.get(name), value) for name, value in new.items()}}
    return [*old, *new] if isinstance(old, list) and isinstance(new, list) else new
