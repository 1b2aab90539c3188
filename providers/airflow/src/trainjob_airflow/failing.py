"""Which errors end a task for good, whatever its retries, and which are retried: `TrainJobError.permanent` for a task.

| Error | The task |
|---|---|
| `InvalidSpec`, `AdmissionRefused`, `NotFound`, `OwnershipConflict`: the request can't be met | fails for good |
| `NoClusterConfigured`, `Unauthorized`, `PermissionDenied`: the connection or its rights | fails for good |
| a template that can't be rendered | fails for good |
| `ClusterUnreachable`, `InvalidResponse`, `ServerUnavailable`, `QuotaExceeded`: no valid answer yet | is retried |
| `NeverStarted`, `ImageUnavailable`: what the TrainJob's pods need is missing, wrong or refused | fails for good |
| `WaitTimeout`, `JobFailed` and the other classes below it: it was tried | is retried |
| any other error of the trigger, such as an ImportError, as Airflow's own `TaskDeferralError` | is retried |

What is retried keeps its class, so that a `retry_policy` can tell one from another; it is not asked about the others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferralError

from trainjob import errors
from trainjob.errors import InvalidSpec, TrainJobError

if TYPE_CHECKING:
    from airflow.sdk import Context


@contextlib.contextmanager
def failing_for_good() -> Iterator[None]:
    """Turns what no other try can mend into an `AirflowFailException` with the same words.

    Raises:
        AirflowFailException: in place of such an error.
    """
    try:
        yield
    except TrainJobError as error:
        if error.permanent:
            raise AirflowFailException(str(error)) from error
        raise


def error_told(event: Mapping[str, Any]) -> TrainJobError | TaskDeferralError:
    """Return the error of a trigger's event: `kind` has its class, `error` its words."""
    if event["kind"] not in errors.__all__:
        return TaskDeferralError(event["error"])
    kind = getattr(errors, event["kind"])
    # An InvalidSpec is made of problems, of which only the words are left; it ends the task as any unknown error does.
    error: TrainJobError = TrainJobError(event["error"]) if kind is InvalidSpec else kind(event["error"])
    return error


def is_tried_again(context: Context, error: Exception) -> bool:
    """Return whether another try of the task follows, by the rules of Airflow 3.3's task runner.

    Args:
        context: the task's.
        error: what the task is about to raise.
    """
    if isinstance(error, AirflowFailException | AirflowSkipException):
        return False
    from airflow.sdk.definitions.retry_policy import RetryAction

    ti = context["ti"]
    policy = context["task"].retry_policy
    if policy is not None:
        decision = policy.evaluate(exception=error, try_number=ti.try_number, max_tries=ti.max_tries, context=context)
        if decision.action is RetryAction.FAIL:
            return False
    return bool(ti.try_number <= ti.max_tries)
