"""Application of the options of `TrainerClient().train(...)` to the fields of a TrainJob.

Options are recognized by their fields, so those of [trainjob.options][], those of the Kubeflow SDK, and dicts with the
same keys are accepted.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from trainjob.spec.base import invalid_field
from trainjob.spec.problems import SEARCH_ADVICE

_SEARCH_FIELDS = ("search_space", "objectives", "algorithm", "trial_config", "trial_template")
_FIELDS = {
    **{name: name for name in ("name", "labels", "annotations", "command", "args")},
    "seconds": "deadline",
    "training_runtime_spec": "runtime_patches",
}
"""Field of a TrainJob or its trainer for the field of an option."""
_OPTIONS = "Name, Labels, Annotations, ActiveDeadlineSeconds, TrainerCommand, TrainerArgs and RuntimePatch"


def apply_options(fields: Mapping[str, Any], trainer_fields: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a TrainJob with its options applied.

    Args:
        fields: the given fields; `options` is a list of options.
        trainer_fields: names of the fields of a trainer that has a command.

    Raises:
        InvalidSpec: an option is not known, contradicts a field or another option, or needs another trainer; or a field
            is one of the SDK's OptimizerClient.
    """
    if search := next((name for name in _SEARCH_FIELDS if name in fields), None):
        raise invalid_field(search, f"a {type(fields[search]).__name__}", SEARCH_ADVICE)
    applied = {name: value for name, value in fields.items() if name != "options"}
    options = fields.get("options") or ()
    if not isinstance(options, list | tuple):
        raise invalid_field("options", f"a {type(options).__name__}", "it must be a list")
    for number, option in enumerate(options):
        place = f"options[{number}]"
        name, value = _read(option, place)
        if name == "runtime_patches":
            given = applied.get(name) or ()
            applied[name] = [*given, _with_own_manager(value, given)]
        elif name in ("command", "args"):
            trainer = _read_trainer(applied.get("trainer"), trainer_fields, f"{place}.{name}", value)
            applied["trainer"] = _combine(trainer, name, list(value), place)
        else:
            applied = _combine(applied, name, value, place)
    return applied


def _to_plain(option: Any) -> Any:
    """Return an option as JSON values, with the names of the Kubernetes API in patches."""
    if not is_dataclass_object(option):
        return [_to_plain(item) for item in option] if isinstance(option, list | tuple) else option
    return {_to_api_name(name): _to_plain(value) for name, value in read_fields(option).items() if value is not None}


def is_dataclass_object(value: Any) -> bool:
    """Return whether a value is an instance of a dataclass, such as an option."""
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def read_fields(value: Any) -> dict[str, Any]:
    """Return the fields of an instance of a dataclass by name."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _to_api_name(name: str) -> str:
    return re.sub("_(.)", lambda found: found[1].upper(), name)


def _read(option: Any, place: str) -> tuple[str, Any]:
    """Return the field that an option sets, and its value."""
    values = read_fields(option) if is_dataclass_object(option) else option
    names = [name for name in values if name != "manager"] if isinstance(values, Mapping) else []
    [name] = names if len(names) == 1 else [""]
    if name not in _FIELDS:
        nested = "; the parts of a patch belong into a RuntimePatch" if type(option).__name__.endswith("Patch") else ""
        raise invalid_field(place, f"a {type(option).__name__}", f"allowed are {_OPTIONS} of trainjob.options{nested}")
    if name == "training_runtime_spec":
        return "runtime_patches", {
            "manager": values.get("manager"),
            "trainingRuntimeSpec": _to_plain(values[name]) or {},
        }
    return _FIELDS[name], timedelta(seconds=values[name]) if name == "seconds" else values[name]


def _with_own_manager(patch: dict[str, Any], earlier: Sequence[Any]) -> dict[str, Any]:
    """Return a patch with a manager of its own, because the SDK gives all the same."""
    taken = [each.get("manager") for each in earlier if isinstance(each, Mapping)]
    manager, number = patch["manager"], 1
    while patch["manager"] in taken:
        number += 1
        patch = {**patch, "manager": f"{manager}-{number}"}
    return patch


def _read_trainer(trainer: Any, names: Sequence[str], place: str, given: Any) -> dict[str, Any]:
    """Return the fields of a trainer that has a command.

    Raises:
        InvalidSpec: it is another kind of trainer.
    """
    has = trainer.__contains__ if isinstance(trainer, Mapping) else lambda name: hasattr(trainer, name)
    if has("func") or has("config"):
        raise invalid_field(place, given, "only a CustomTrainerContainer has a command: give one as trainer")
    if trainer is None or isinstance(trainer, Mapping):
        return dict(trainer or {})
    return {name: value for name in names if (value := getattr(trainer, name, None)) is not None}


def _combine(fields: Mapping[str, Any], name: str, value: Any, place: str) -> dict[str, Any]:
    """Return fields with the value of an option.

    Raises:
        InvalidSpec: the field has another value.
    """
    given = fields.get(name)
    if isinstance(given, Mapping) and isinstance(value, Mapping):
        combined = dict(given)
        for key, text in value.items():
            combined = _combine(combined, key, text, f"{place}.{name}")
        return {**fields, name: combined}
    if given is not None and given != value:
        raise invalid_field(f"{place}.{name}", value, f"{name} is already {given!r}")
    return {**fields, name: value}
