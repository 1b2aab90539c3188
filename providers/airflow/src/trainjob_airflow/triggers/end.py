"""Waiting in the triggerer for a TrainJob that somebody else made."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainjob_airflow.deferral import first_seconds_over
from trainjob_airflow.hooks.trainjob import TrainJobHook


class TrainJobEndTrigger(BaseTrigger):
    """Fires once, when the TrainJob has ended; killing its task leaves the TrainJob alone.

    All of a triggerer that use the same connection and namespace share one list+watch. The events are:

    * `{"reference": {...}, "outcome": {...}}`: it has ended, well or not;
    * `{"error": "...", "kind": "WaitTimeout"}`: the waiting is over without that; the kind is the error's class.
    """

    def __init__(
        self,
        *,
        namespace: str,
        name: str,
        run_key: dict[str, Any] | None,
        deadline: float | None,
        kubernetes_conn_id: str | None,
    ) -> None:
        """Holds JSON values only.

        Args:
            namespace: the TrainJob's namespace; empty means the connection's.
            name: the TrainJob's name; empty with a run key.
            run_key: who asked for it, as `TrainJobSensor` takes it; None with a name.
            deadline: when to stop waiting, in seconds of the epoch, so that it survives a restart of the triggerer.
            kubernetes_conn_id: the Airflow connection's id; its content is read in the triggerer.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        self.namespace, self.name, self.run_key = namespace, name, run_key
        self.deadline, self.kubernetes_conn_id = deadline, kubernetes_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class's path and every argument."""
        names = ("namespace", "name", "run_key", "deadline", "kubernetes_conn_id")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, telling the task's log how the TrainJob stands."""
        began = time.monotonic()
        event = TriggerEvent(await self._wait())
        await first_seconds_over(began, self.task_instance)
        yield event

    async def _wait(self) -> dict[str, Any]:
        from trainjob.errors import TrainJobError
        from trainjob.lifecycle import wait_external
        from trainjob_airflow.run_key import wanted

        try:
            cluster = await TrainJobHook(self.kubernetes_conn_id).get_conn_async()
            job = wanted(cluster, name=self.name, run_key=self.run_key, namespace=self.namespace)
            left = None if self.deadline is None else timedelta(seconds=max(0.0, self.deadline - time.time()))
            ended = await wait_external(cluster, job, total=left, tell=self.log.info)
        except TrainJobError as error:
            return {"error": str(error), "kind": type(error).__name__}
        return {"reference": ended.reference.to_dict(), "outcome": ended.outcome.to_dict()}
