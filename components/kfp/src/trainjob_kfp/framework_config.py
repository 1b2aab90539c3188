"""Configuration of a training framework, from the arguments of the component `fine_tune`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob_kfp.input_names import CONFIG_FIELDS


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


def _nest(path: str, value: Any) -> dict[str, Any]:
    """Return a value as a field of nested dicts."""
    first, _, rest = path.partition(".")
    return {first: _nest(rest, value) if rest else value}


def _merge(old: Any, new: Any) -> Any:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{name: _merge(old.get(name), value) for name, value in new.items()}}
    return new
