"""Conversion of a Python function to an argument of the components that run one."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.function_source import function_source
from trainjob_kfp.input_names import name_inputs

MAX_ARGUMENT_BYTES = 64_000
"""Maximum size of an argument: Argo stores it twelve times in the Workflow (Argo 4.0, KFP 2.17)."""
SIZE_RULE = f"{MAX_ARGUMENT_BYTES} bytes are allowed, because Argo stores it twelve times in a Workflow of 1 MiB"


def source(function: Callable[..., Any], *helpers: Callable[..., Any]) -> str:
    """Return the source text of a function, to pass it to a component.

    The text is the value of `train(function=...)` or `evaluate(function=...)`, or an item of
    `fine_tune(config={"reward_functions": [...]})`. These inputs also accept the function itself, if it has no helpers.
    The function has to import what it needs, and must not use names of its module other than its helpers. The arguments
    of `train` and `evaluate` come from `function_args`. A function that cannot run outside its module raises an error
    here, while the pipeline is written.

    Args:
        function: a plain function that is defined with `def` in a file.
        helpers: functions and classes of its module that it uses, in the order in which they need each other. In the
            pod they are defined inside the function, after the imports with which it begins, and use these imports.

    Raises:
        InvalidSpec: the function cannot be sent: a lambda, a method, a closure, a function that uses names of its
            module, a function without source, or one with more than 64 kB.
    """
    try:
        text = function_source(function, *helpers)
    except InvalidSpec as error:
        raise name_inputs(error, {}) from None
    if (size := len(text.encode())) > MAX_ARGUMENT_BYTES:
        raise InvalidSpec(Problem("function", f"{size} bytes of {function.__name__}", SIZE_RULE))
    return text


def convert_arguments(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a function with the types that its annotations name.

    KFP inserts a value of the pipeline into a dict as text. A whole number is `100` on a cluster (2.17,
    backend/src/v2/driver/resolve.go) and `100.0` under `kfp.local`; other values are JSON. KFP's JSON also does not
    distinguish 1.0 from 1. Values of parameters with the annotations int, float, bool, list or dict are converted back.

    Args:
        function: the function that gets the arguments.
        arguments: arguments by name.

    Raises:
        InvalidSpec: a text is not a value of the annotated type.
    """
    kinds = {name: parameter.annotation for name, parameter in inspect.signature(function).parameters.items()}
    return {name: _convert_value(name, value, kinds.get(name)) for name, value in arguments.items()}


def _convert_value(name: str, value: Any, annotation: Any) -> Any:
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
        raise InvalidSpec(
            Problem(f"function_args.{name}", repr(value), f"the function's annotation requires {kind.__name__}")
        )
    return found
