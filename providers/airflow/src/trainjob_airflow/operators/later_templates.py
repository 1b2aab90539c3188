"""Check of the templates of a run's later tasks, when its first ones start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from trainjob.spec.base import iterate_texts
from trainjob_airflow.operators.templates import is_resolved_at_run_time
from trainjob_airflow.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow.sdk import Context

# Names that Airflow 3.1 to 3.3 defines only in runs with a logical date (`RuntimeTaskInstance.get_template_context`).
_DATE_NAMES = {
    *("ds", "ds_nodash", "ts", "ts_nodash", "ts_nodash_with_tz"),
    *("logical_date", "data_interval_start", "data_interval_end"),
}
_ADVICE = "use run_id, {{ dag_run.run_after | ds }}, or partition_key in a partitioned run"


def check_later_templates(task: Any, context: Context) -> None:
    """Refuse a run without a logical date if a later task of it needs one.

    Such runs are those of an asset, of a partition, and manual ones without a date. Without this check, an export would
    fail after hours of training.

    Args:
        task: the task that starts.
        context: its context.

    Raises:
        AirflowFailException: a later task has a template that can't be rendered in this run.
    """
    if context.get("logical_date") is not None:
        return
    environment = task.get_template_env()
    found = [
        f"{later.task_id}.{field} ({text!r})"
        for later in task.get_flat_relatives(upstream=False)
        for field, text in _iterate_templates(later)
        if _needs_date(environment, text, context)
    ]
    if found:
        message = f"this run has no logical date, but later tasks need one: {', '.join(sorted(found))}; {_ADVICE}"
        raise AirflowFailException(message)


def _iterate_templates(task: Any) -> Iterator[tuple[str, str]]:
    """Yield the template field and the text of each template of a task, also of a mapped one."""
    given = getattr(task, "partial_kwargs", None)  # of a mapped task
    for field in task.template_fields:
        value = getattr(task, field, None) if given is None else given.get(field)
        yield from ((field, text) for _, _, text in iterate_texts(value, "") if is_resolved_at_run_time(text))


def _needs_date(environment: Any, text: str, context: Context) -> bool:
    """Return whether a template fails because of a missing date.

    Other errors are the task's own.
    """
    from jinja2 import UndefinedError, meta

    try:
        missing = (meta.find_undeclared_variables(environment.parse(text)) & _DATE_NAMES) - context.keys()
        if missing:
            environment.from_string(text).render(context)
    except UndefinedError as error:
        return any(f"'{name}' is undefined" in str(error) for name in missing)
    except Exception:  # noqa: BLE001 - any error of a macro
        return False
    return False
