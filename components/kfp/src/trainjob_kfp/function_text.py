"""A Python function as an argument of the components that run one."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.manifest.function import function_source


def source(function: Callable[..., Any]) -> str:
    """The text of a function for `train(function=...)` and `evaluate(function=...)`.

    The function imports what it needs and uses nothing from around it; its arguments come from `function_args`. What
    can't run far from its module is refused here, while the pipeline is written.

    Args:
        function: a plain function that is defined with `def` in a file.

    Raises:
        InvalidSpec: it can't be sent: a lambda, a method, a closure, one that uses names of its module, or one without
            source.
    """
    return function_source(function)


def typed_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a function, where the pipeline's own values among them have become text on their way.

    KFP puts a value into a dict as text: a whole number as `100` on a cluster (2.17, backend/src/v2/driver/resolve.go),
    as `100.0` under `kfp.local`, the others as JSON; and its JSON does not tell 1.0 from 1. A parameter that is
    annotated with int, float, bool, list or dict gets that back.

    Args:
        function: what they are for.
        given: arguments by name.

    Raises:
        InvalidSpec: a text is not what the annotation says.
    """
    kinds = {name: parameter.annotation for name, parameter in inspect.signature(function).parameters.items()}
    return {name: _typed(name, value, kinds.get(name)) for name, value in given.items()}


def _typed(name: str, value: Any, annotation: Any) -> Any:
    kind = {"int": int, "float": float, "bool": bool, "list": list, "dict": dict}.get(
        getattr(annotation, "__name__", annotation)
    )
    if kind is float and type(value) is int:
        return float(value)
    if kind is None or not isinstance(value, str):
        return value
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if kind is int and isinstance(found, float) and found.is_integer():
        return int(found)
    if kind is float and type(found) is int:
        return float(found)
    if type(found) is not kind:
        raise InvalidSpec(Problem(f"function_args.{name}", repr(value), f"the function wants {kind.__name__}"))
    return found
