"""Errors that fail a task at once, and errors that Airflow retries.

The rule is `TrainJobError.permanent`, applied to an Airflow task:

| Error | Consequence for the task |
|---|---|
| `InvalidSpec`, `AdmissionRefused`, `NotFound`, `OwnershipConflict`: the request cannot be met | fails without retry |
| `NoClusterConfigured`, `PermissionDenied`: wrong connection, no permission | fails without retry |
| `NoClusterConfigured`, because Airflow has no connection of this ID | is retried |
| a template that cannot be rendered | fails without retry |
| `ClusterUnreachable`, `InvalidResponse`, `ServerUnavailable`, `QuotaExceeded`: no valid response yet | is retried |
| `OutOfThreads`: worker or triggerer can start no further thread | is retried |
| `WrongCluster`, `IncompatibleVersion`: another part of Airflow has another connection or version | is retried |
| `Unauthorized`; `PermissionDenied` of a request that worked before: replaced credentials or rules | is retried |
| `NeverStarted`, `ImageUnavailable`: what the TrainJob's pods need is missing, wrong or refused | fails without retry |
| `WaitTimeout`, `JobFailed` and its other subclasses: the step was tried | is retried |
| any other error of the trigger, such as an ImportError, as Airflow's own `TaskDeferralError` | is retried |

An error that is retried keeps its class, so that a `retry_policy` can distinguish it. Airflow does not evaluate the
policy for the other errors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainjob import errors
from trainjob.errors import IncompatibleVersion, InvalidSpec, TrainJobError
from trainjob_airflow.version_compat import (
    AirflowFailException,
    AirflowSkipException,
    TaskDeferralError,
    get_retry_policy,
)

if TYPE_CHECKING:
    from airflow.sdk import Context


@contextlib.contextmanager
def convert_permanent_errors() -> Iterator[None]:
    """Raise an `AirflowFailException` in place of an error that no retry can fix.

    The exception has the same message.

    Raises:
        AirflowFailException: a `TrainJobError` that is permanent was raised inside.
    """
    try:
        yield
    except TrainJobError as error:
        if error.permanent:
            raise AirflowFailException(str(error)) from error
        raise


def event_from_error(error: TrainJobError) -> dict[str, Any]:
    """Return the fields of a trigger's event that describe an error, for [error_from_event][]."""
    return {"error": str(error), "kind": type(error).__name__, "retryable": error.retryable}


def error_from_event(event: Mapping[str, Any]) -> TrainJobError | TaskDeferralError:
    """Return the error that a trigger's event describes.

    In the event, `kind` is the name of the error's class, and `error` is its message. An error that is not of
    `trainjob.errors` becomes a `TaskDeferralError`. Events of earlier versions have no `retryable`. A newer version may
    have other classes, whose errors become a `TrainJobError`, and events of another form.
    """
    if "error" not in event:
        return IncompatibleVersion.of_values("event of a trigger", KeyError("outcome or error"))
    if is_unexpected(event):
        return TaskDeferralError(event["error"])
    kind = event.get("kind")
    # An InvalidSpec is created from problems, and the event has only text. A TrainJobError is permanent, too.
    is_base = kind not in errors.__all__ or kind == InvalidSpec.__name__
    error: TrainJobError = (TrainJobError if is_base else getattr(errors, str(kind)))(event["error"])
    error.retryable = event.get("retryable", error.retryable)
    return error


def is_unexpected(event: Mapping[str, Any]) -> bool:
    """Return whether an event has an error that its trigger did not expect.

    An example is an ImportError.
    """
    return "error" in event and event.get("kind") not in errors.__all__ and "retryable" not in event


def will_retry(context: Context, error: Exception) -> bool:
    """Return whether Airflow tries the task again after an error.

    The rules are those of the task runner of Airflow 3.3.

    Args:
        context: context of the task.
        error: the exception that the task is about to raise.
    """
    if isinstance(error, AirflowFailException | AirflowSkipException):
        return False
    ti = context["ti"]
    policy = get_retry_policy(context)
    if policy is not None:
        from airflow.sdk.definitions.retry_policy import RetryAction

        decision = policy.evaluate(exception=error, try_number=ti.try_number, max_tries=ti.max_tries, context=context)
        if decision.action is RetryAction.FAIL:
            return False
    return bool(ti.try_number <= ti.max_tries)
