"""The base of every request: checked when it is made, and told in our own words when it is wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import Self

from trainjob.errors import InvalidSpec, Problem

_SHORT = 80
# Values under these names may be credentials: they are never shown.
_SECRET_NAME = re.compile(r"token|secret|password|credential|access_key|api_key", re.IGNORECASE)
HIDDEN = "***"


class Spec(BaseModel):
    """A frozen pydantic model that raises `InvalidSpec`, and takes look-alikes by their attributes.

    So code that makes its requests with the Kubeflow SDK's dataclasses of the same names works unchanged.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", from_attributes=True, arbitrary_types_allowed=False)

    def __init__(self, **fields: Any) -> None:
        """Check the fields.

        Raises:
            InvalidSpec: with every rule that is broken.
        """
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise invalid(error) from None

    @classmethod
    def of(cls, given: Any) -> Self:
        """This model from itself, a dict, or an object with the same attributes.

        Raises:
            InvalidSpec: with every rule that is broken.
        """
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise invalid(error) from None


def invalid(error: ValidationError) -> InvalidSpec:
    """Our error for pydantic's: one problem each, with the field's path, the value where it may be shown, the rule."""
    problems: dict[str, Problem] = {}
    for detail in error.errors(include_url=False):
        cause = (detail.get("ctx") or {}).get("error")
        place = tuple(str(part) for part in detail["loc"] if not _is_union_branch(part))
        found = _nested(cause, place) if isinstance(cause, InvalidSpec) else [_problem(detail, place)]
        for problem in found:
            problems.setdefault(f"{problem.field}{problem.allowed}", problem)
    return InvalidSpec(list(problems.values()))


def _nested(cause: InvalidSpec, place: tuple[str, ...]) -> list[Problem]:
    """Problems that a validator raised itself; their fields count from where it stands."""
    return [Problem(_path((*place, problem.field)), problem.value, problem.allowed) for problem in cause.problems]


def _problem(detail: Mapping[str, Any], place: tuple[str, ...]) -> Problem:
    field = _path(place) or "request"
    if detail["type"] == "extra_forbidden":
        return Problem(field, _shown(field, detail["input"]), "there is no such field")
    if detail["type"] == "missing":
        return Problem(field, "nothing", "it is required")
    return Problem(field, _shown(field, detail["input"]), f"{detail['msg'][0].lower()}{detail['msg'][1:]}")


def _path(place: tuple[str, ...]) -> str:
    return ".".join(part for part in place if part)


def _is_union_branch(part: Any) -> bool:
    """Pydantic puts the tried type of a union into the path, such as `function-before[...]` or `HuggingFace…`."""
    return isinstance(part, str) and ("[" in part or part[:1].isupper() or part in ("str", "int", "is-instance"))


def _shown(field: str, value: Any) -> str:
    if _SECRET_NAME.search(field.rpartition(".")[2]):
        return HIDDEN
    if isinstance(value, BaseModel | Mapping):
        return f"a {type(value).__name__}"
    text = repr(value)
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def refuse(field: str, value: object, allowed: str) -> InvalidSpec:
    """The error for one broken rule; `value` is shown as it is written in Python, a string that says `***` as it is."""
    return InvalidSpec(Problem(field, HIDDEN if value == HIDDEN else _shown(field, value), allowed))
