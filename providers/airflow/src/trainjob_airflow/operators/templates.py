"""Operator arguments whose values are known only at run time: their detection, and their rendering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator

from trainjob.errors import InvalidSpec, Problem
from trainjob_airflow.version_compat import AirflowFailException


class TemplatedOperator(BaseOperator):
    """Base class of the operators: an invalid template fails the task without a retry."""

    def render_template(self, content: Any, context: Any, *arguments: Any, **more: Any) -> Any:
        """Render a template.

        An object with a method `render_copy`, such as a workspace, returns a rendered copy of itself.

        Raises:
            AirflowFailException: the template is invalid, uses an undefined name, its file is missing, or the rendered
                value is not allowed. The next try would render the same text.
        """
        from jinja2 import TemplateError

        render = super().render_template
        try:
            if hasattr(content, "render_copy"):
                return content.render_copy(lambda value: render(value, context, *arguments, **more))
            return render(content, context, *arguments, **more)
        except (TemplateError, InvalidSpec) as error:
            message = f"a template of this task cannot be rendered: {type(error).__name__}: {error}"
            raise AirflowFailException(message) from error


def is_resolved_at_run_time(value: Any) -> bool:
    """Return whether a value has a template or another task's result, known only at run time.

    Raises:
        InvalidSpec: an object that Airflow does not render contains a template.
    """
    from airflow.sdk.definitions._internal.mixins import ResolveMixin
    from pydantic import BaseModel

    from trainjob.spec.problems import has_template

    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(map(is_resolved_at_run_time, value.values()))
    if isinstance(value, (list, tuple, set)):
        return any(map(is_resolved_at_run_time, value))
    if isinstance(value, BaseModel) and has_template(repr(value)):
        name = type(value).__name__
        rule = "Airflow renders no templates in it; give a dict of its fields"
        raise InvalidSpec(Problem(name, "an object with a template", rule))
    return isinstance(value, ResolveMixin)


def is_template_file(value: Any, extensions: Sequence[str]) -> bool:
    """Return whether Airflow replaces a value with a file's content when the task runs."""
    return isinstance(value, str) and value.endswith(tuple(extensions))
