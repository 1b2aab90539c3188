"""Base class of every request, which is validated when it is created."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from trainjob.errors import InvalidSpec, Problem, without_credentials

_SHORT = 80
_MOST_LEVELS = 100  # nested levels of JSON; a pod in a TrainJob is at level 15
# Values under these names may be credentials: they are never shown.
_SECRET_NAME = re.compile(r"token|secret|password|credential|access_key|api_key", re.IGNORECASE)
HIDDEN = "***"


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
            raise invalid(error) from None

    @classmethod
    def of(cls, given: Any) -> Self:
        """Return this model from an instance of it, a dict, or an object with the same attributes.

        Raises:
            InvalidSpec: at least one field is invalid; the error lists every broken rule.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise invalid(error) from None


def invalid(error: ValidationError) -> InvalidSpec:
    """Return the `InvalidSpec` for a pydantic error.

    It has one problem for each broken rule: the field's path, its value unless it may be a credential, and the rule.
    """
    problems: dict[str, Problem] = {}
    for detail in error.errors(include_url=False):
        cause = (detail.get("ctx") or {}).get("error")
        place = tuple(
            f"[{part}]" if isinstance(part, int) else part for part in detail["loc"] if not _is_union_branch(part)
        )
        found = _nested(cause, place) if isinstance(cause, InvalidSpec) else [_problem(detail, place)]
        for problem in found:
            problems.setdefault(f"{problem.field}{problem.allowed}", problem)
    return InvalidSpec(list(problems.values()))


def _nested(cause: InvalidSpec, place: tuple[str, ...]) -> list[Problem]:
    """Return the problems of an `InvalidSpec` that a validator raised, with full field paths.

    The validator's paths are relative to `place`, the path of its own field.
    """
    return [Problem(_path((*place, problem.field)), problem.value, problem.allowed) for problem in cause.problems]


def _problem(detail: Mapping[str, Any], place: tuple[str, ...]) -> Problem:
    field = _path(place) or "request"
    if detail["type"] == "extra_forbidden":
        return Problem(field, _shown(field, detail["input"]), "there is no such field")
    if detail["type"] == "missing":
        return Problem(field, "nothing", "it is required")
    return Problem(field, _shown(field, detail["input"]), f"{detail['msg'][0].lower()}{detail['msg'][1:]}")


def _path(place: tuple[str, ...]) -> str:
    """Return the path of a field, such as `volumes[1].mount_path`."""
    return ".".join(part for part in place if part).replace(".[", "[")


def _is_union_branch(part: Any) -> bool:
    """Return whether a part of a field's path is a type of a union and not a field.

    Pydantic inserts the type that it tried, such as `function-before[...]` or `HuggingFace…`.
    """
    is_class = isinstance(part, str) and part[:1].isupper() and not part.isupper()  # not a variable, such as HF_TOKEN
    return is_class or (isinstance(part, str) and ("[" in part or part in ("str", "int", "is-instance")))


def _shown(field: str, value: Any) -> str:
    *around, last = field.split(".")
    if "env" in (*around, last) or _SECRET_NAME.search(last):
        return HIDDEN
    if isinstance(value, BaseModel | Mapping):
        return f"a {type(value).__name__}"
    try:
        text = without_credentials(repr(value))
    except (RecursionError, ValueError):  # too deep, or a number with thousands of digits
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def refuse(field: str, value: object, allowed: str) -> InvalidSpec:
    """Return the error for one broken rule.

    Args:
        field: path of the field.
        value: its value, which the error shows as its Python `repr`; `***` is shown unchanged.
        allowed: the rule.
    """
    return InvalidSpec(
        Problem(field, HIDDEN if isinstance(value, str) and value == HIDDEN else _shown(field, value), allowed)
    )


def as_json(value: Any, *, nan: bool = False) -> Any:
    """Return a copy of a value that consists of JSON values, as the Kubernetes API requires.

    Args:
        value: the value.
        nan: whether to allow NaN and infinities, which Python's JSON has and the standard does not.

    Raises:
        InvalidSpec: the value contains another type, NaN (unless `nan`), or more than 100 nested levels.
    """
    try:
        plain = json.loads(json.dumps(value, allow_nan=nan))
    except (TypeError, ValueError, RecursionError) as error:
        raise refuse("", f"a {type(value).__name__}", f"only JSON values have a place in it: {error}") from None
    if _is_deeper(plain, _MOST_LEVELS):
        raise refuse("", f"a {type(value).__name__}", f"it may have {_MOST_LEVELS} levels, one in another")
    return plain


def _is_deeper(value: Any, levels: int) -> bool:
    layer = [value]
    for _ in range(levels):
        inner = [list(item.values()) if isinstance(item, dict) else item for item in layer]
        layer = [child for item in inner if isinstance(item, list) for child in item]
    return bool(layer)
