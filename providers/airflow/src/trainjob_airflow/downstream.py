"""Skips of the tasks after a task."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

_RUN_IN_ANY_CASE = ("all_done", "always")  # trigger rules of tasks such as a notification


def skip_downstream(task: BaseOperator, context: Context) -> None:
    """Skip the tasks directly after a task; further ones follow their trigger rules.

    Teardowns are not skipped, and neither are tasks that run in any case.

    Args:
        task: the running task.
        context: its context.

    Raises:
        DownstreamTasksSkipped: for Airflow, which then marks this task as successful.
    """
    from airflow.providers.standard.utils.skipmixin import SkipMixin

    class Skips(SkipMixin):
        task_id = task.task_id  # under which Airflow keeps the skipped tasks, so that they stay skipped if cleared

    following = [
        each
        for each in context["task"].get_direct_relatives(upstream=False)
        if not each.is_teardown and each.trigger_rule not in _RUN_IN_ANY_CASE
    ]
    if following:
        Skips().skip(  # type: ignore[no-untyped-call]
            ti=context["ti"], tasks=following
        )
