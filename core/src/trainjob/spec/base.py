"""Base class of every request, which is validated when it is created."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from trainjob.credentials import redact_credentials
from trainjob.errors import InvalidSpec, Problem

_MAX_SHOWN_LENGTH = 80
_MAX_DEPTH = 100  # nested levels of JSON; a pod in a TrainJob is at level 15
# Values under these names may be credentials: they are never shown.
_SECRET_NAME = re.compile(r"token|secret|password|credential|access_key|api_key", re.IGNORECASE)
MAX_NODES = 2**31 - 1  # of the Trainer, whose numNodes is an int32
REDACTED = "***"


class Spec(BaseModel):
    """A frozen pydantic model that raises `InvalidSpec`.

    It also accepts objects of other classes that have the same attributes. Code that creates its requests with the
    Kubeflow SDK's dataclasses of the same names therefore works unchanged.
    """

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
            raise to_invalid_spec(error) from None

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
            raise to_invalid_spec(error) from None


def _name_functions(value: Any) -> Any:
    """Return a field's value with names in place of functions."""
    if isinstance(value, FunctionType):
        return value.__qualname__
    return tuple(map(_name_functions, value)) if isinstance(value, tuple) else value


def to_invalid_spec(error: ValidationError) -> InvalidSpec:
    """Return the `InvalidSpec` for a pydantic error.

    It has one problem for each broken rule: the field's path, its value unless it may be a credential, and the rule.
    """
    problems: dict[str, Problem] = {}
    for detail in error.errors(include_url=False):
        cause = (detail.get("ctx") or {}).get("error")
        location = tuple(
            f"[{part}]" if isinstance(part, int) else part for part in detail["loc"] if not _is_union_branch(part)
        )
        found = _prefix_problems(cause, location) if isinstance(cause, InvalidSpec) else [_to_problem(detail, location)]
        for problem in found:
            problems.setdefault(f"{problem.field}{problem.allowed}", problem)
    return InvalidSpec(list(problems.values()))


def _prefix_problems(cause: InvalidSpec, location: tuple[str, ...]) -> list[Problem]:
    """Return the problems of an `InvalidSpec` that a validator raised, with full field paths.

    The validator's paths are relative to `location`, the path of its own field.
    """
    return [Problem(_path((*location, problem.field)), problem.value, problem.allowed) for problem in cause.problems]


def _to_problem(detail: Mapping[str, Any], location: tuple[str, ...]) -> Problem:
    field = _path(location) or "request"
    if detail["type"] == "extra_forbidden":
        return Problem(field, _format_value(field, detail["input"]), "there is no such field")
    if detail["type"] == "missing":
        return Problem(field, "nothing", "it is required")
    if detail["type"].startswith("time_delta"):
        allowed = "write a timedelta or a number of seconds, such as timedelta(hours=6) or 21600"
        return Problem(field, _format_value(field, detail["input"]), allowed)
    return Problem(field, _format_value(field, detail["input"]), f"{detail['msg'][0].lower()}{detail['msg'][1:]}")


def _path(location: tuple[str, ...]) -> str:
    """Return the path of a field, such as `volumes[1].mount_path`."""
    return ".".join(part for part in location if part).replace(".[", "[")


def _is_union_branch(part: Any) -> bool:
    """Return whether a part of a field's path is a type of a union and not a field.

    Pydantic inserts the type that it tried, such as `function-before[...]` or `HuggingFace…`.
    """
    is_class = isinstance(part, str) and part[:1].isupper() and not part.isupper()  # not a variable, such as HF_TOKEN
    return is_class or (isinstance(part, str) and ("[" in part or part in ("str", "int", "is-instance", "callable")))


def _format_value(field: str, value: Any) -> str:
    *around, last = field.split(".")
    if "env" in (*around, last) or _SECRET_NAME.search(last):
        return REDACTED
    if isinstance(value, BaseModel | Mapping):
        return f"a {type(value).__name__}"
    try:
        text = redact_credentials(repr(value))
    except (RecursionError, ValueError):  # too deep, or a number with thousands of digits
        return f"a {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN_LENGTH else text[: _MAX_SHOWN_LENGTH - 1] + "…"


def invalid_field(field: str, value: object, allowed: str) -> InvalidSpec:
    """Return the error for one broken rule.

    Args:
        field: path of the field.
        value: its value, which the error shows as its Python `repr`; `***` is shown unchanged.
        allowed: the rule.
    """
    return InvalidSpec(
        Problem(
            field, REDACTED if isinstance(value, str) and value == REDACTED else _format_value(field, value), allowed
        )
    )


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
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from iterate_texts(inner, f"{field}[{number}]", name)


def is_deeper(value: Any, levels: int) -> bool:
    """Return whether a value has more nested levels; a number or text is a level, too."""
    layer = [value]
    for _ in range(levels):
        inner = [list(item.values()) if isinstance(item, dict) else item for item in layer]
        layer = [child for item in inner if isinstance(item, list) for child in item]
    return bool(layer)
