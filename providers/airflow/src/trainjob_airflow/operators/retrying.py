"""The rules by which Airflow tries a task again after an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.definitions.retry_policy import RetryAction
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

if TYPE_CHECKING:
    from airflow.sdk import Context


def is_tried_again(context: Context, error: Exception) -> bool:
    """Return whether another try of the task follows, by the rules of Airflow 3.3's task runner.

    Args:
        context: the task's.
        error: what the task is about to raise.
    """
    if isinstance(error, AirflowFailException | AirflowSkipException):
        return False
    ti = context["ti"]
    policy = context["task"].retry_policy
    if policy is not None:
        decision = policy.evaluate(exception=error, try_number=ti.try_number, max_tries=ti.max_tries, context=context)
        if decision.action is RetryAction.FAIL:
            return False
    return bool(ti.try_number <= ti.max_tries)
