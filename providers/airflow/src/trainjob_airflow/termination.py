"""Reason for a task's stop: a user's decision about the task, or the end of its worker.

A user decides about a task by clearing it or by setting its state, such as to failed or success.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import Any

TaskStates = Mapping[str, Mapping[str, Any]]
"""State of each task instance by run ID and task ID; the ID of a mapped task ends with its map index."""

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


def get_user_decision(task_instance: Any) -> str:
    """Return the task's state if a user's decision caused it, else an empty string.

    The function sends a request to Airflow. The string is also empty if Airflow does not respond. The TrainJob then
    continues. At worst, its work is adopted or stopped later.
    """
    state = _get_task_state(task_instance)
    return state if state in _USER_DECISION_STATES else ""


def was_handed_over(task_instance: Any) -> bool:
    """Return whether a trigger was only handed to another triggerer, or its triggerer stops.

    The function sends a request to Airflow.

    Airflow 3.3 calls `on_kill` for every trigger that no longer belongs to its triggerer, as after a user's decision.
    It does so for all triggers of a triggerer that was declared dead but still runs (TriggerRunner.cancel_triggers).
    Airflow 3.1 and 3.2 cancel a trigger for each of these reasons without stating it.

    The task is still deferred in that case. After a user's decision it is not deferred, unless it was cleared and its
    new try is deferred already. If Airflow does not respond, the function returns True, because no decision is known. A
    triggerer that was declared dead has often lost its connection to Airflow.
    """
    return _get_task_state(task_instance) in (_UNKNOWN_STATE, "deferred")


def request_states(
    dag_id: str, task_ids: Collection[str], run_ids: Collection[str], map_index: int | None = None
) -> TaskStates:
    """Return the states of task instances of a DAG (blocking IO).

    Args:
        dag_id: ID of the DAG.
        task_ids: IDs of the tasks.
        run_ids: IDs of the DAG runs.
        map_index: map index of the task instances; None means all.

    Raises:
        Exception: Airflow does not respond.
    """
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    states: TaskStates = RuntimeTaskInstance.get_task_states(
        dag_id=dag_id, task_ids=list(task_ids), run_ids=list(run_ids), map_index=map_index
    )
    return states


def find_state(states: TaskStates, task_instance: Any) -> str:
    """Return the state of a task instance among those of its DAG.

    Returns:
        The state; an empty string for a cleared task, and `removed` for a task instance that does not exist any more.
    """
    name, found = get_state_name(task_instance), states.get(task_instance.run_id, {})
    return str(found[name] or "") if name in found else "removed"


def get_state_name(task_instance: Any) -> str:
    """Return the name of a task instance in the states of its DAG run."""
    index = _get_map_index(task_instance)
    return str(task_instance.task_id) if index is None else f"{task_instance.task_id}_{index}"


def _get_task_state(task_instance: Any) -> str:
    ti = task_instance
    try:
        states = request_states(ti.dag_id, [ti.task_id], [ti.run_id], _get_map_index(ti))
    except Exception:  # noqa: BLE001 - after any error, the state is not known
        return _UNKNOWN_STATE
    return find_state(states, ti)


def _get_map_index(task_instance: Any) -> int | None:
    index = task_instance.map_index
    return index if index is not None and index >= 0 else None
