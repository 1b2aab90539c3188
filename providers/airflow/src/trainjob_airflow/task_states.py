"""States of the task instances of a triggerer's triggers, requested from Airflow for all of them at once.

Airflow cancels a trigger when its task is no longer deferred, but not in each case. If a user clears a deferred task
together with its upstream tasks, the task's state is NULL until these have run again. `Trigger.clean_unused` compares
the state with `!=`, which is never true for NULL, so the trigger continues to run (Airflow 3.1.8 to 3.3.2).
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from trainjob_airflow.termination import ENDED_STATES, TaskStates, find_state, get_state_name, request_states
from trainjob_airflow.version_compat import run_request

_CHECK_SECONDS = 2.0
# The requests of a triggerer pass through one supervisor, which also starts triggers and sends events. A round of
# requests is followed by a pause of this multiple of its duration, so that they take at most a tenth of its time.
_PAUSE_PER_REQUEST_TIME = 9.0
# States after which a trigger has nothing to wait for. A task that is scheduled, queued or running again is left out:
# Airflow cancels its trigger, or this trigger's event has caused the state.
_DECIDED_STATES = ENDED_STATES | {""}
# Bytes of the IDs in one request. They are part of its URL, for which proxies allow 8 KiB (nginx); httpx allows 64 KiB.
_MAX_IDS_SIZE = 6000
_LOGGER = logging.getLogger(__name__)


class TaskStateWatch:
    """Part of a trigger that is cancelled after a user has decided about its task.

    The user has cleared the task or has set its state.

    It is an asynchronous context manager. Like `asyncio.timeout`, it cancels the code inside and ends without an error.

    Attributes:
        decided_state: the state that a user's decision caused, an empty string for a cleared task; None if the code
            inside has ended by itself.
    """

    def __init__(self, task_instance: Any) -> None:
        """Create the context.

        Args:
            task_instance: task instance of the trigger; None under `dag.test()`, where no state is requested.
        """
        self.task_instance = task_instance
        self.decided_state: str | None = None
        self._task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> TaskStateWatch:
        """Start to check the task's state."""
        if self.task_instance is not None:
            self._task = asyncio.current_task()
            _get_checks().add(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """End the checks; suppress the cancellation that [cancel][] caused."""
        if self._task is None:
            return False
        _get_checks().remove(self)
        if self.decided_state is None:
            return False
        # A cancellation by Airflow at the same time counts separately, and is raised.
        return self._task.uncancel() == 0 and kind is asyncio.CancelledError

    def cancel(self, state: str) -> None:
        """Cancel the code inside because of the task's state."""
        if self._task is not None and self.decided_state is None:
            self.decided_state = state
            self._task.cancel()


class TaskStateChecks:
    """Repeated checks of the tasks of all triggers of one event loop.

    Every 2 s, the states of all tasks of a DAG are requested, with as few requests as the length of a URL allows. The
    pause is longer if the requests of one round take longer than 0.2 s.
    """

    def __init__(self, fetch: Callable[[str, Collection[str], Collection[str]], Awaitable[TaskStates]]) -> None:
        """Create the checks.

        Args:
            fetch: returns the states of all task instances of a DAG with the given task IDs and run IDs.
        """
        self._fetch = fetch
        self._watches: dict[TaskStateWatch, None] = {}
        self._running: asyncio.Task[None] | None = None
        self._failed_dags = set[str]()  # the DAGs whose last request has failed

    def add(self, watch: TaskStateWatch) -> None:
        """Check the task of a watch until it is removed."""
        self._watches[watch] = None
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    def remove(self, watch: TaskStateWatch) -> None:
        """Check the task of a watch no longer."""
        self._watches.pop(watch, None)

    async def _run(self) -> None:
        pause = _CHECK_SECONDS
        while self._watches:
            await asyncio.sleep(pause)
            started_at = time.monotonic()
            await self._check_all()
            pause = max(_CHECK_SECONDS, _PAUSE_PER_REQUEST_TIME * (time.monotonic() - started_at))
        self._running = None

    async def _check_all(self) -> None:
        watches_by_dag = defaultdict[str, list[TaskStateWatch]](list)
        for watch in self._watches:
            watches_by_dag[watch.task_instance.dag_id].append(watch)
        for dag_id, watches in watches_by_dag.items():
            try:
                for some in _slice_watches(watches):
                    await self._check(dag_id, some)
            except Exception:  # the next round tries again
                level = logging.DEBUG if dag_id in self._failed_dags else logging.WARNING
                self._failed_dags.add(dag_id)
                _LOGGER.log(
                    level,
                    "The states of the tasks of DAG %s can't be requested, so a user's decision about a deferred task "
                    "may be noticed late; the requests are repeated",
                    dag_id,
                    exc_info=True,
                )
            else:
                self._failed_dags.discard(dag_id)

    async def _check(self, dag_id: str, watches: Collection[TaskStateWatch]) -> None:
        task_ids = {watch.task_instance.task_id for watch in watches}
        run_ids = {watch.task_instance.run_id for watch in watches}
        states = await self._fetch(dag_id, task_ids, run_ids)
        for watch in watches:
            if find_state(states, watch.task_instance) in _DECIDED_STATES:
                await self._end(watch, states, task_ids)

    async def _end(self, watch: TaskStateWatch, states: TaskStates, task_ids: Collection[str]) -> None:
        """Cancel the code of a watch whose task a user seems to have decided about.

        If the name in the response may be that of another task, the state is requested for this task alone.
        """
        ti = watch.task_instance
        if _may_be_other_task(get_state_name(ti), ti.task_id, task_ids):
            states = await self._fetch(ti.dag_id, {ti.task_id}, {ti.run_id})
        state = find_state(states, ti)
        if watch in self._watches and state in _DECIDED_STATES:
            watch.cancel(state)


def _slice_watches(watches: Iterable[TaskStateWatch]) -> list[list[TaskStateWatch]]:
    """Return the watches of a DAG in slices whose IDs fit into the URL of one request."""
    slices, ids, size = list[list[TaskStateWatch]](), set[tuple[str, str]](), 0
    for watch in watches:
        own = {("task_ids", watch.task_instance.task_id), ("run_ids", watch.task_instance.run_id)}
        added = len(urlencode([*(own - ids)])) + 1
        if not slices or size + added > _MAX_IDS_SIZE:
            slices.append([])
            ids, size, added = set(), 0, len(urlencode([*own])) + 1
        slices[-1].append(watch)
        ids |= own
        size += added
    return slices


def _may_be_other_task(name: str, task_id: str, task_ids: Collection[str]) -> bool:
    """Return whether a name in a response may be that of another task than `task_id`.

    The name `a_1` may be that of the task `a_1` or of the task instance 1 of the mapped task `a`.
    """
    mapped = name.rpartition("_")[0] if name.rpartition("_")[2].isdecimal() else ""
    return any(other in task_ids and other != task_id for other in (name, mapped))


_checks_by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, TaskStateChecks] = weakref.WeakKeyDictionary()


def _get_checks() -> TaskStateChecks:
    loop = asyncio.get_running_loop()
    if loop not in _checks_by_loop:
        _checks_by_loop[loop] = TaskStateChecks(_fetch_states)
    return _checks_by_loop[loop]


async def _fetch_states(dag_id: str, task_ids: Collection[str], run_ids: Collection[str]) -> TaskStates:
    return await run_request(request_states, dag_id, task_ids, run_ids)
