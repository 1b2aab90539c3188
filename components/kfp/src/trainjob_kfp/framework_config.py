"""Configuration of a training framework, from the arguments of the component `fine_tune`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainjob.errors import InvalidSpec, Problem

CONFIG_FIELDS = {
    "framework": "framework",
    "method": "method",
    "epochs": "epochs",
    "max_steps": "max_steps",
    "batch_size": "batch_size",
    "learning_rate": "learning_rate",
    "lora_rank": "peft_config.lora_rank",
    "arguments": "arguments",
}
"""Path of the field in the configuration by the name of the component's argument."""


def build_config(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration from `config` and the arguments for fields.

    An argument overrides the same field in `config`. Mappings of both are joined.

    Args:
        given: the given ones of these arguments by name.

    Raises:
        InvalidSpec: `framework` and `config` name different frameworks.
    """
    config = dict(given.get("config", {}))
    framework = given.get("framework")
    if framework and config.get("framework", framework) != framework:
        rule = f"config has the framework {config['framework']!r}: give one"
        raise InvalidSpec(Problem("framework", repr(framework), rule))
    for argument, path in CONFIG_FIELDS.items():
        if argument in given:
            config = _merge(config, _nest(path, given[argument]))
    return config


def name_arguments(error: InvalidSpec, given: Mapping[str, Any]) -> InvalidSpec:
    """Return the error of a step with the component's names for the fields.

    The name of an argument replaces the path of its field in the configuration, unless the field was given in `config`.

    Args:
        error: the error; its paths start with `config.`.
        given: the given ones of the arguments in `CONFIG_FIELDS`, and `config`, by name.
    """
    in_config = given.get("config", {})
    names = {
        f"config.{path}": argument
        for argument, path in CONFIG_FIELDS.items()
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
    return new
