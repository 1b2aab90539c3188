"""Reason for a task's stop: a user's decision about the task, or the end of its worker.

A user decides about a task by clearing it or by setting its state, such as to failed or success.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

ENDED_STATES = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
"""States of a task instance that end it until a user clears it."""
# States that follow a user's decision. In any other state, such as running or up_for_retry, only the worker ends, and
# the task continues.
_USER_DECISION_STATES = ENDED_STATES | {"restarting"}
_UNKNOWN_STATE = "not known"


class WaitInterrupted(BaseException):
    """Interruption of a wait because the process received SIGTERM.

    It is a BaseException, so that no `except Exception` in between catches it.
    """


class StopRequest:
    """Record of a SIGTERM that a task received, until the task can act on it.

    Airflow's runner calls `on_kill` from the signal handler and then continues `execute` (3.3, airflow.sdk's
    execution_time/task_runner.py). A handler cannot query Airflow for the reason of the signal. It must not interrupt
    the creation of a TrainJob either, because it would then be unknown whether the TrainJob exists.

    Attributes:
        is_requested: whether the signal was received.
    """

    def __init__(self) -> None:
        self.is_requested = self._is_interruptible = False

    def request(self) -> None:
        """Record that the signal was received; called from the signal handler.

        Raises:
            WaitInterrupted: the process is in an interruptible wait.
        """
        self.is_requested = True
        if self._is_interruptible:
            self._is_interruptible = False  # a second signal must not interrupt the handling of the first one
            raise WaitInterrupted

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Run the code inside so that SIGTERM interrupts it; skip it after a SIGTERM.

        Raises:
            WaitInterrupted: the signal was received before or during the code.
        """
        self._is_interruptible = True
        try:
            if self.is_requested:
                raise WaitInterrupted
            yield
        finally:
            self._is_interruptible = False


def get_user_decision(context: Context) -> str:
    """Return the task's state if a user's decision caused it; otherwise an empty string.

    The string is also empty if Airflow does not respond. The TrainJob then continues. At worst, its work is adopted or
    stopped later.
    """
    state = _get_task_state(context["ti"])
    return state if state in _USER_DECISION_STATES else ""


def was_handed_over(task_instance: Any) -> bool:
    """Return whether a trigger was only handed to another triggerer (blocking IO).

    Airflow 3.3 calls `on_kill` for every trigger that no longer belongs to its triggerer, as after a user's decision.
    It does so for all triggers of a triggerer that was declared dead but still runs (TriggerRunner.cancel_triggers).

    The task is still deferred in that case. After a user's decision it is not deferred, unless it was cleared and its
    new try is deferred already. If Airflow does not respond, the function returns True, because no decision is known. A
    triggerer that was declared dead has often lost its connection to Airflow.
    """
    return _get_task_state(task_instance) in (_UNKNOWN_STATE, "deferred")


def _get_task_state(ti: Any) -> str:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    index = ti.map_index if ti.map_index is not None and ti.map_index >= 0 else None
    try:
        found = RuntimeTaskInstance.get_task_states(
            dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=index
        )
    except Exception:  # noqa: BLE001 - after any error, the state is not known
        return _UNKNOWN_STATE
    states = [state for run in found.values() for state in run.values()]
    return str(states[0] or "") if states else "removed"
