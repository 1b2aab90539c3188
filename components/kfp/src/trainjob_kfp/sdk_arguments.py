"""Arguments of the Kubeflow SDK's `TrainerClient().train(...)` as inputs of the component `train`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.spec import CustomTrainerContainer
from trainjob.spec.base import Spec
from trainjob.spec.sdk_options import apply_options, is_dataclass_object, read_fields
from trainjob_kfp.function_text import source

ARGUMENTS = ("trainer", "options")
"""Arguments of the SDK that are no inputs."""
_NAMES = {"func_args": "function_args"}


def expand_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inputs of `train` for arguments with a trainer or options of the SDK.

    Args:
        arguments: arguments of a call by name.

    Raises:
        InvalidSpec: an option or the trainer has no inputs, or contradicts another argument.
    """
    fields = apply_options(arguments, [*CustomTrainerContainer.model_fields])
    trainer = _read_set_fields(fields.pop("trainer", None) or {})
    if "config" in trainer:
        raise InvalidSpec(Problem("trainer", "a BuiltinTrainer", "use the component fine_tune, which has its fields"))
    if function := trainer.pop("func", None):
        trainer["function"] = source(function)
    inputs = {_NAMES.get(name, name): value for name, value in trainer.items()}
    if twice := [name for name in inputs if name in arguments]:
        raise InvalidSpec([Problem(name, "given", "the trainer has it: give only one of them") for name in twice])
    if isinstance(deadline := fields.get("deadline"), timedelta):
        fields["deadline"] = f"{deadline.total_seconds():.0f}s"
    return {**fields, **inputs}


def to_plain_object(value: Any) -> Any:
    """Return an argument with plain values.

    Objects of a request or of the SDK become dicts of the fields that are set, and functions become their source.
    """
    if inspect.isfunction(value):
        return source(value)
    if isinstance(value, Mapping):
        return {name: to_plain_object(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain_object(inner) for inner in value]
    if isinstance(value, Spec):
        return value.model_dump(mode="json", exclude_defaults=True)
    if is_dataclass_object(value):
        return {name: to_plain_object(inner) for name, inner in _read_set_fields(value).items()}
    return value


def _read_set_fields(value: Any) -> dict[str, Any]:
    """Return the fields of an object that are set."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Spec):
        return {name: getattr(value, name) for name in value.model_fields_set}
    return {name: inner for name, inner in read_fields(value).items() if inner is not None}
