"""Which errors end a task for good, whatever its retries: what `TrainJobError.permanent` means for a task.

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
from typing import Any

from airflow.sdk.exceptions import AirflowFailException, TaskDeferralError

from trainjob import errors
from trainjob.errors import InvalidSpec, TrainJobError


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
