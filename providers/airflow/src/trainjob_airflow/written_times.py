"""Times up to which a task's log has the lines of its TrainJob, stored in Airflow.

A process that continues the log in the same try of the task starts there. Another try has a log of its own, which has
all lines. Airflow 3.3 gives triggers no access to the task state store, so a trigger stores the times as an XCom,
and a worker in the task state store. Airflow deletes the XComs of a task at the start of each try, but not when a
triggerer starts. A worker whose task is rescheduled needs the other store for that reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from typing import TYPE_CHECKING, Any

from trainjob_airflow.version_compat import get_task_state_store, run_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from airflow.sdk import Context

    from trainjob.client import WrittenTimes
    from trainjob.lifecycle import JobReference

XCOM_KEY = "log_times"
STATE_STORE_KEY = "trainjob_log"
_SECONDS_BEFORE_EXIT = 5.0  # the triggerer kills its process 20 s after a SIGTERM
_LOGGER = logging.getLogger(__name__)


# -- a trigger ---------------------------------------------------------------------------------------------------------


class StoredTimes:
    """Times of the log of a deferred task, and their storage as an XCom.

    It is an asynchronous context manager of the trigger. The times are read at its start. They are stored at the
    first line, then every 30 s if lines were written, and after a cancellation. The log must be closed by then. When
    the wait has ended, they are deleted. A request that fails is skipped.
    """

    def __init__(self, task_instance: Any, reference: JobReference) -> None:
        """Create the context.

        Args:
            task_instance: task instance of the trigger; None if nothing is to be stored, as under `dag.test()`.
            reference: the TrainJob.
        """
        self._task_instance, self._reference = task_instance, reference
        self._changed = self._are_stored = self._has_ended = False
        self._wake: asyncio.Event | None = None
        self._storing: asyncio.Task[None] | None = None  # exists after the first change
        self._request: asyncio.Future[Any] | None = None

    async def __aenter__(self) -> WrittenTimes:
        """Return the times that an earlier process has stored, or new ones."""
        from trainjob.client import WrittenTimes
        from trainjob.lifecycle.loop_batches import get_loop_batches

        if self._task_instance is None:
            return WrittenTimes("")
        values = await run_request(_request_xcom, "get_one", self._task_instance)
        log_id = _get_log_id(self._task_instance, self._reference)
        self._written_times = WrittenTimes.from_dict(values, log_id)
        self._are_stored = values is not None
        self._first_values = self._written_times.to_dict(is_exact=False)
        self._written_times.on_change = functools.partial(get_loop_batches().call_soon, self._on_change)
        return self._written_times

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Store the times after a cancellation, and delete them after the wait."""
        if self._task_instance is None:
            return
        self._has_ended = True
        if self._storing is not None:
            self._storing.cancel()
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            await self._store_before_exit()
        elif kind is None and self._are_stored:
            await self._wait_for_request()
            await run_request(_request_xcom, "delete", self._task_instance)

    def _on_change(self) -> None:
        self._changed = True
        if self._wake is not None:
            self._wake.set()
        elif not self._has_ended:
            self._wake = asyncio.Event()
            self._storing = asyncio.create_task(self._store_repeatedly(self._wake))

    async def _store_repeatedly(self, wake: asyncio.Event) -> None:
        """Store the times until the task is cancelled."""
        from trainjob.client import SETTLE_SECONDS, STORE_SECONDS

        await self._store(self._first_values)  # without the new lines, which may not have arrived in the log yet
        while True:
            await asyncio.sleep(STORE_SECONDS - SETTLE_SECONDS)
            wake.clear()
            values = self._written_times.to_dict(is_exact=False)
            await asyncio.sleep(SETTLE_SECONDS)
            await self._store(values)
            await wake.wait()

    async def _store(self, values: dict[str, Any]) -> None:
        self._are_stored = True
        self._request = asyncio.ensure_future(run_request(_request_xcom, "set", self._task_instance, value=values))
        await asyncio.shield(self._request)  # a request that was sent must not be cancelled

    async def _wait_for_request(self) -> None:
        """Wait for the request in progress, if there is one."""
        if self._request is not None:
            await asyncio.wait({self._request}, timeout=_SECONDS_BEFORE_EXIT)

    async def _store_before_exit(self) -> None:
        """Store the times after the last line, if a line was written."""
        if self._request is None and not self._changed:
            return
        try:
            async with _responses.received():
                await self._wait_for_request()
                values = self._written_times.to_dict(is_exact=True)
                request = run_request(_request_xcom, "set", self._task_instance, value=values)
                await asyncio.wait_for(request, _SECONDS_BEFORE_EXIT)
        except Exception:
            _LOGGER.debug("The XCom %r could not be written", XCOM_KEY, exc_info=True)


class _Responses:
    """Responses of Airflow in a triggerer that stops.

    Such a triggerer ends its reader of responses before it cancels the triggers. Its supervisor still processes their
    requests until the process has exited (Airflow 3.3.2, `TriggerRunner.arun` and `WatchedSubprocess.kill`). In
    Airflow 3.1 there is no such reader, because each request reads its own response.
    """

    def __init__(self) -> None:
        self._waiting = 0
        self._reader: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def received(self) -> AsyncIterator[None]:
        """Receive responses until the context ends, also if the reader has ended."""
        from airflow.sdk.execution_time import task_runner

        comms: Any = task_runner.SUPERVISOR_COMMS
        reader = getattr(comms, "_reader_task", None)
        if reader is not None and reader.done():
            await comms.start_reader()
            self._reader = comms._reader_task  # noqa: SLF001
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._reader is not None and not self._waiting:
                self._reader.cancel()


_responses = _Responses()


def _identify(task_instance: Any) -> dict[str, Any]:
    return {name: getattr(task_instance, name) for name in ("dag_id", "task_id", "run_id", "map_index")}


def _request_xcom(method: str, task_instance: Any, **arguments: Any) -> Any:
    """Call a method of Airflow's XCom for the times; after an error, return None."""
    from airflow.sdk.execution_time.xcom import XCom

    try:
        return getattr(XCom, method)(key=XCOM_KEY, **arguments, **_identify(task_instance))
    except Exception:
        _LOGGER.debug("The XCom %r: %s failed", XCOM_KEY, method, exc_info=True)
        return None


def _get_log_id(task_instance: Any, reference: JobReference) -> str:
    """Return an ID of the log: each try of a task has a log of its own."""
    return f"{reference.uid}/{task_instance.try_number}"


# -- a worker ----------------------------------------------------------------------------------------------------------


def load_times(context: Context, reference: JobReference) -> WrittenTimes:
    """Return the times that another worker has stored in this try of the task."""
    from trainjob.client import WrittenTimes

    values, store = None, get_task_state_store(context)
    if store is not None:
        with contextlib.suppress(Exception):  # the log then starts again
            values = store.get(STATE_STORE_KEY)
    return WrittenTimes.from_dict(values, _get_log_id(context["ti"], reference))


def store_times(context: Context, written_times: WrittenTimes) -> None:
    """Store the times for the next worker of this try, after the last line was written."""
    store = get_task_state_store(context)
    if store is None:
        return
    with contextlib.suppress(Exception):  # the log then starts again
        store.set(STATE_STORE_KEY, written_times.to_dict(is_exact=True))
