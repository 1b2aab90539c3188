"""Waiting for a TrainJob in the triggerer."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from trainjob.cluster import Cluster
    from trainjob.run import JobReference, Limits


class TrainJobTrigger(BaseTrigger):
    """Fires once, when the TrainJob has ended; every end is an event, as a trigger that raises skips the operator.

    All triggers of a triggerer that use the same connection and namespace share one list+watch for TrainJobs and one
    for pods. The events are:

    * `{"reference": {...}, "outcome": {...}}`: it has ended, well or not; see `trainjob.status.Outcome.to_dict`.
    * `{"reference": {...}, "error": "...", "kind": "WaitTimeout"}`: we stopped waiting; the kind is the error's class.
    """

    def __init__(
        self,
        *,
        reference: dict[str, Any],
        limits: dict[str, Any],
        deadline: float | None,
        kubernetes_conn_id: str | None,
        on_kill_action: str = "delete",
    ) -> None:
        """Holds JSON values only.

        Args:
            reference: the job, as `trainjob.run.JobReference.to_dict` gives it.
            limits: seconds to wait and what to do then, as `trainjob.run.Limits.to_dict` gives it.
            deadline: when to stop waiting, in seconds of the epoch, so that it survives a restart of the triggerer.
            kubernetes_conn_id: the Airflow connection's id; its content is read in the triggerer.
            on_kill_action: what killing the task does to the job: `delete` or `keep`.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.reference, self.limits, self.deadline = reference, limits, deadline
        self.kubernetes_conn_id, self.on_kill_action = kubernetes_conn_id, on_kill_action

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class's path and every argument."""
        names = ("reference", "limits", "deadline", "kubernetes_conn_id", "on_kill_action")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, telling the task's log what happens."""
        from trainjob.errors import TrainJobError
        from trainjob.run import Narrator, wait_async

        try:
            cluster, reference = await self._cluster(), self._reference()
            listener = Narrator(reference, _on_this_loop(self.log.info)).listener
            outcome = await wait_async(cluster, reference, limits=self._limits(), listener=listener)
        except TrainJobError as error:
            yield TriggerEvent({"reference": self.reference, "error": str(error), "kind": type(error).__name__})
        else:
            yield TriggerEvent({"reference": self.reference, "outcome": outcome.to_dict()})

    async def on_kill(self) -> None:
        """A person marked the deferred task failed or successful, or cleared it: the job goes too."""
        from trainjob.run import cancel

        if self.on_kill_action != "delete":
            return
        cluster, reference = await self._cluster(), self._reference()
        await asyncio.to_thread(cancel, cluster, reference)
        self.log.info("TrainJob %s was deleted, as its task was killed", reference)

    async def _cluster(self) -> Cluster:
        from trainjob_airflow.hooks.trainjob import TrainJobHook

        connection = await TrainJobHook(self.kubernetes_conn_id).connection_async()
        return await asyncio.to_thread(_open, connection)

    def _limits(self) -> Limits:
        from trainjob.run import Limits

        limits = Limits.from_dict(self.limits)
        if self.deadline is None:
            return limits
        return replace(limits, total=timedelta(seconds=max(0.0, self.deadline - time.time())))

    def _reference(self) -> JobReference:
        from trainjob.run import JobReference

        return JobReference(**self.reference)


def _open(connection: Any) -> Cluster:
    from trainjob.cluster import shared_cluster

    return shared_cluster(connection)


def _on_this_loop(write: Callable[[str], None]) -> Callable[[str], None]:
    """Writes lines that come from other threads on this event loop, in this task's logging context."""
    loop, context = asyncio.get_running_loop(), contextvars.copy_context()

    def write_there(line: str) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(write, line, context=context)

    return write_there
