"""Functions that detect operator arguments whose values are known only at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainjob.errors import InvalidSpec, Problem


def is_resolved_at_run_time(value: Any) -> bool:
    """Return whether a value has a template or another task's result, known only at run time.

    Raises:
        InvalidSpec: an object that Airflow does not render contains a template.
    """
    from airflow.sdk.definitions._internal.mixins import ResolveMixin
    from pydantic import BaseModel

    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(map(is_resolved_at_run_time, value.values()))
    if isinstance(value, (list, tuple, set)):
        return any(map(is_resolved_at_run_time, value))
    if isinstance(value, BaseModel) and "{{" in repr(value):
        name = type(value).__name__
        raise InvalidSpec(
            Problem(name, "a template inside", "Airflow renders no templates in it; give it as a dict of its fields")
        )
    return isinstance(value, ResolveMixin)


def is_template_file(value: Any, extensions: Sequence[str]) -> bool:
    """Return whether Airflow replaces a value with a file's content when the task runs."""
    return isinstance(value, str) and value.endswith(tuple(extensions))
