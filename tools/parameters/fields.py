"""Parameters of the steps, as their classes in `trainjob.spec` define and describe them.

Each is written once: name, type and default are those of a field, and the description is in the docstring of its class.
"""

from __future__ import annotations

import enum
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic_core import PydanticUndefined

from trainjob.spec import WorkspaceVolume
from trainjob.spec.base import Spec
from trainjob.spec.base_request import BaseRequest

_ENTRY = re.compile(r"\**(\w+): (.*)")
_SIMPLE: Mapping[type, str] = {str: "text", bool: "boolean", int: "integer", float: "number", timedelta: "duration"}


@dataclass(frozen=True)
class Field:
    """A parameter of a step.

    Attributes:
        name: name of the field.
        kind: `text`, `boolean`, `integer`, `number`, `duration`, `texts`, `list`, `mapping`, `function`, `object` or
            `workspace`.
        default: default as a JSON value; None if there is none, or if it depends on other fields.
        required: whether it has no default.
        description: meaning, in one line without a full stop at the end.
        classes: classes of the objects that are its value or are in it.
        is_shared: whether the field is one of every step.
    """

    name: str
    kind: str
    default: Any
    required: bool
    description: str
    classes: tuple[type[Spec], ...] = ()
    is_shared: bool = False

    @property
    def full_description(self) -> str:
        """The description, with the default unless it says so itself."""
        if self.default in (None, "", False) or "by default" in self.description.lower():
            return f"{self.description}."
        joint = ". By" if ". " in self.description else "; by"
        return f"{self.description}{joint} default `{self.default}`."


def list_fields(owner: type[Spec]) -> list[Field]:
    """Return the fields of a class: its own first, then those of its base classes.

    Raises:
        ValueError: the docstrings do not describe a field.
    """
    found: dict[str, Field] = {}
    described: dict[str, str] = {}
    for each in owner.__mro__:
        if issubclass(each, Spec):
            described = {**parse_attributes(each), **described}
    for each in owner.__mro__:
        for name in vars(each).get("__annotations__", {}):
            if name in owner.model_fields and name not in found and not _is_discriminator(owner, name):
                found[name] = _create_field(owner, name, described)
    return sorted(found.values(), key=lambda field: not field.required)


def parse_attributes(owner: type[Any]) -> dict[str, str]:
    """Return the descriptions in a class's section `Attributes`, each as one line."""
    section = re.split(r"\n\n?Attributes:\n", inspect.cleandoc(owner.__doc__ or ""))[1:]
    return parse_entries(textwrap.dedent(section[0])) if section else {}


def parse_entries(section: str) -> dict[str, str]:
    """Return the texts of a section of a docstring by their names, each as one line."""
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if entry := _ENTRY.fullmatch(line):
            name = entry[1]
            found[name] = entry[2]
        elif name and line.startswith(" "):
            found[name] = f"{found[name]} {line.strip()}"
    return found


def _is_discriminator(owner: type[Spec], name: str) -> bool:
    return (
        get_origin(owner.model_fields[name].annotation) is Literal
        and len(get_args(owner.model_fields[name].annotation)) == 1
    )


def _create_field(owner: type[Spec], name: str, described: Mapping[str, str]) -> Field:
    info = owner.model_fields[name]
    if name not in described:
        raise ValueError(f"the docstring of {owner.__name__} does not describe {name}")
    kind, classes = _classify(info.annotation)
    default = None if info.default is PydanticUndefined else info.default
    default = default.value if isinstance(default, enum.Enum) else default
    shown = default if isinstance(default, str | bool | int | float) else None
    is_shared = name in BaseRequest.model_fields
    return Field(name, kind, shown, info.is_required(), described[name].rstrip("."), classes, is_shared)


def _classify(annotation: Any) -> tuple[str, tuple[type[Spec], ...]]:
    """Return the kind of a type, and the classes of objects in it."""
    options = _list_options(annotation)
    classes = tuple(each for option in options for each in _list_classes(option))
    if WorkspaceVolume in classes:
        return "workspace", classes
    [first, *others] = [option for option in options if not (inspect.isclass(option) and issubclass(option, Spec))] or [
        None
    ]
    if first is None or (others and classes):
        return "object", classes
    origin = get_origin(first)
    if origin is Literal:
        return "text", ()
    if inspect.isclass(first) and issubclass(first, enum.Enum):
        return "text", ()
    if first in _SIMPLE:
        return _SIMPLE[first], ()
    if origin is Callable:
        return "function", ()
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return "mapping", classes
    if inspect.isclass(origin) and issubclass(origin, Sequence):
        is_text = {*map(_strip, get_args(first))} - {Ellipsis} == {str}
        return ("texts" if is_text else "list"), classes
    return "object", classes


def _list_options(annotation: Any) -> list[Any]:
    """Return the types of a union without None, in their order."""
    stripped = _strip(annotation)
    if get_origin(stripped) in (Union, types.UnionType):
        return [option for part in get_args(stripped) for option in _list_options(part)]
    return [] if stripped is type(None) else [stripped]


def _strip(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _list_classes(annotation: Any) -> list[type[Spec]]:
    stripped = _strip(annotation)
    if inspect.isclass(stripped) and get_origin(stripped) is None:
        return [stripped] if issubclass(stripped, Spec) else []
    return [found for part in get_args(stripped) for found in _list_classes(part)]
