"""A task's process is told to stop: whether a person has decided about the task, or only its worker goes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

ENDED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
"""The states of a task instance that nothing follows but a person's clear."""
# The states about which a person has decided. With any other, such as running or up_for_retry, the
# worker goes and the task stays.
_DECIDED = ENDED | {"restarting"}
_NOT_KNOWN = "not known"


class StopAsked(BaseException):
    """The process was told to stop; no Exception, so that nothing on the way takes it for its own."""


class StopRequest:
    """A SIGTERM, as it reaches a task: kept until it can be acted on.

    Airflow's runner calls `on_kill` from the signal's handler and then goes on with `execute` (3.3, airflow.sdk's
    execution_time/task_runner.py). A handler can't ask Airflow why the signal came, and must not break off a creation,
    after which there may or may not be a TrainJob.

    Attributes:
        asked: whether the signal has come.
    """

    def __init__(self) -> None:
        self.asked = self._may_break_off = False

    def ask(self) -> None:
        """The signal has come; called from its handler.

        Raises:
            StopAsked: there is waiting to break off.
        """
        self.asked = True
        if self._may_break_off:
            self._may_break_off = False  # one is enough: the next signal must not disturb what is done about it
            raise StopAsked

    @contextlib.contextmanager
    def breaks_off(self) -> Iterator[None]:
        """What happens inside is broken off by the signal, or not begun when it has come already.

        Raises:
            StopAsked: it was broken off.
        """
        self._may_break_off = True
        try:
            if self.asked:
                raise StopAsked
            yield
        finally:
            self._may_break_off = False


def decision_about(context: Context) -> str:
    """The state that a person has brought the task to; empty when its try is still wanted, or Airflow can't be asked.

    A TrainJob that is not known to be unwanted goes on: the worst is work that is adopted, or stopped, later.
    """
    state = _state_of(context["ti"])
    return state if state in _DECIDED else ""


def is_anothers_now(task_instance: Any) -> bool:
    """Whether a trigger that is told of a person's decision was only handed to another triggerer (blocking IO).

    Airflow 3.3 calls `on_kill` for every trigger that is this triggerer's no more, as if a person had decided, and so
    for all of them when a triggerer was taken for dead and is not (TriggerRunner.cancel_triggers). The task is still
    deferred then; after a person's decision it is not, unless it was cleared and its new try is deferred already. When
    Airflow can't be asked, which is what such a triggerer has just been through, nothing is known to be unwanted.
    """
    return _state_of(task_instance) in (_NOT_KNOWN, "deferred")


def _state_of(ti: Any) -> str:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    index = ti.map_index if ti.map_index is not None and ti.map_index >= 0 else None
    try:
        found = RuntimeTaskInstance.get_task_states(
            dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id], map_index=index
        )
    except Exception:  # noqa: BLE001 - whatever the reason, it is not known
        return _NOT_KNOWN
    states = [state for run in found.values() for state in run.values()]
    return str(states[0] or "") if states else "removed"
