"""Base class of every request, which is validated when it is created."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from typing_extensions import Self

from trainjob.errors import InvalidSpec, Problem, ProblemKind
from trainjob.spec.problems import REDACTED, SEARCH_ADVICE, format_value, is_search_space, to_invalid_spec

_MAX_DEPTH = 100  # nested levels of JSON; a pod in a TrainJob is at level 15
MAX_NODES = 2**31 - 1  # of the Trainer, whose numNodes is an int32


class Spec(BaseModel):
    """A frozen pydantic model that raises `InvalidSpec`.

    It also accepts objects of other classes that have the same attributes. Code that creates its requests with the
    Kubeflow SDK's dataclasses of the same names therefore works unchanged.

    Attributes:
        field_aliases: paths of fields by other names that users try, for suggestions in errors.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {}

    # `defer_build` builds each validator when it is first needed. Building all of them would take half of the time in
    # which a DAG file is parsed.
    model_config = ConfigDict(
        frozen=True, extra="forbid", from_attributes=True, arbitrary_types_allowed=False, defer_build=True
    )

    def __init__(self, **fields: Any) -> None:
        """Validate the fields.

        Raises:
            InvalidSpec: at least one field is invalid; the error lists every broken rule.
        """
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise to_invalid_spec(error, type(self)) from None

    @classmethod
    def find_field(cls, name: str) -> str:
        """Return the path of the field that another name means; empty if there is none."""
        return cls.field_aliases.get(name, "")

    @model_validator(mode="before")
    @classmethod
    def _refuse_other_class(cls, value: Any) -> Any:
        """Refuse an object of another class of ours, whose fields have other meanings."""
        if isinstance(value, Spec) and not isinstance(value, cls):
            raise invalid_field("", value, f"give a {cls.__name__} or a dict of its fields")
        return value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the names and values for `repr` and `str`; functions are shown by name.

        Airflow stores the text of an operator's request with the DAG. An address would make every parse of the DAG's
        file a new version of the DAG, because each process has other addresses.
        """
        for name, value in super().__repr_args__():
            yield name, _name_functions(value)

    @classmethod
    def from_object(cls, value: Any) -> Self:
        """Return this model from an instance of it, a dict, or an object with the same attributes.

        Raises:
            InvalidSpec: at least one field is invalid; the error lists every broken rule.
        """
        try:
            return cls.model_validate(value)
        except ValidationError as error:
            raise to_invalid_spec(error, cls) from None


def _name_functions(value: Any) -> Any:
    """Return a field's value with names in place of functions."""
    if isinstance(value, FunctionType):
        return value.__qualname__
    return tuple(map(_name_functions, value)) if isinstance(value, tuple) else value


def invalid_field(field: str, value: object, allowed: str) -> InvalidSpec:
    """Return the error for one broken rule; the value None means that the field is missing.

    Args:
        field: path of the field.
        value: its value, which the error shows as its Python `repr`; `***` is shown unchanged.
        allowed: the rule.
    """
    if is_search_space(value):
        return InvalidSpec(Problem(field, "a search space", SEARCH_ADVICE))
    shown = REDACTED if isinstance(value, str) and value == REDACTED else format_value(field, value)
    kind = ProblemKind.MISSING if value is None else ProblemKind.INVALID
    return InvalidSpec(Problem(field, shown, allowed, kind))


def to_json_value(value: Any, *, allow_nan: bool = False) -> Any:
    """Return a copy of a value that consists of JSON values, as the Kubernetes API requires.

    Args:
        value: the value.
        allow_nan: whether to allow NaN and infinities, which Python's JSON has and the standard does not.

    Raises:
        InvalidSpec: the value contains another type, NaN (unless `allow_nan`), a text that UTF-8 cannot represent, or
            more than 100 nested levels.
    """
    try:
        text = json.dumps(value, allow_nan=allow_nan, ensure_ascii=False)
        text.encode()
        plain = json.loads(text)
    except UnicodeEncodeError:
        rule = "each text in it must be valid Unicode: it contains half of a surrogate pair, such as \\ud800"
        raise invalid_field("", f"a {type(value).__name__}", rule) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid_field("", f"a {type(value).__name__}", f"it must consist of JSON values: {error}") from None
    if is_deeper(plain, _MAX_DEPTH):
        raise invalid_field("", f"a {type(value).__name__}", f"it may have at most {_MAX_DEPTH} nested levels")
    return plain


def iterate_texts(value: Any, field: str, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield path, name and text of each text; a list's items have the name of the list.

    Args:
        value: texts, lists and mappings.
        field: path of the value.
        name: name of the value.
    """
    if isinstance(value, str):
        yield field, name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from iterate_texts(inner, f"{field}.{key}" if field else str(key), str(key))
    elif isinstance(value, list | tuple | set):
        for number, inner in enumerate(value):
            yield from iterate_texts(inner, f"{field}[{number}]", name)


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether a value has more nested levels; a number or text is a level, too."""
    layer = [value]
    for _ in range(levels):
        inner = [list(item.values()) if isinstance(item, dict) else item for item in layer]
        layer = [child for item in inner if isinstance(item, list) for child in item]
    return bool(layer)
