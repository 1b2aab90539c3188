"""Mark of a TrainJob whose result a task has ended with.

The mark is written when Airflow has stored the success of the task. If the process or Airflow fails before that, the
TrainJob has no mark, and the next try adopts it, also after a clear. An example is Airflow's own race: the scheduler
fails a task whose process has just succeeded ("finished with state success, but the task instance's state attribute is
queued", Airflow 3.3).

Airflow calls `on_task_instance_success` of this module, a listener of the plugin, in the task's process after it has
sent the success, also under `dag.test()`. Airflow 3.3 calls it even if the success was refused, so the state is
requested. The API server calls it, too, if a user marks a task as successful; no result is recorded there.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from trainjob.threads import start_thread
from trainjob_airflow.termination import get_user_decision

if TYPE_CHECKING:
    from trainjob.client import Cluster
    from trainjob.lifecycle import JobReference
    from trainjob_airflow.hooks.trainjob import TrainJobHook

# Airflow ends the process of a task 20 s after its last state was stored (`[core] task_success_overtime`).
_MAX_SECONDS = 8.0
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Result:
    """Result of a TrainJob with which this process ends its task.

    Attributes:
        hook: hook of the TrainJob's cluster.
        reference: the TrainJob.
        task_instance: the task instance.
    """

    hook: TrainJobHook
    reference: JobReference
    task_instance: Any


_recorded: list[Result] = []


def record_result(result: Result) -> None:
    """Record the result with which this process ends its task.

    [on_task_instance_success][] reads it.
    """
    _recorded[:] = [result]


@hookimpl
def on_task_instance_success(previous_state: object, task_instance: object) -> None:  # noqa: ARG001 - pluggy's names
    """Mark this process' TrainJob as delivered if Airflow has stored the task's success."""
    if not _recorded:
        return
    result = _recorded.pop()
    error: Exception | None = None
    try:
        if get_user_decision(result.task_instance) != "success":
            error = RuntimeError("Airflow has not stored the success of the task")
        else:
            error = _mark(result.hook.get_conn(), result.reference)
    except Exception as failure:  # noqa: BLE001 - the task has succeeded
        error = failure
    if error:
        _LOGGER.warning(
            "TrainJob %s is not marked as delivered: %s. If this task runs again, it adopts this TrainJob instead of "
            "repeating its work. To repeat it, delete the TrainJob before the task is cleared",
            result.reference,
            error,
        )


def _mark(cluster: Cluster, reference: JobReference) -> Exception | None:
    """Mark a TrainJob as delivered, and return the error if that was not possible in time."""
    from trainjob.lifecycle import mark_delivered

    errors: list[Exception | None] = [TimeoutError(f"the API server did not respond within {_MAX_SECONDS:.0f} s")]

    def mark() -> None:
        try:
            mark_delivered(cluster, reference)
            errors[0] = None
        except Exception as error:  # noqa: BLE001 - reported by the caller
            errors[0] = error

    start_thread(mark, name="mark-delivered").join(_MAX_SECONDS)
    return errors[0]
