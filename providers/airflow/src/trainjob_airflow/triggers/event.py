"""Trigger for asset events when TrainJobs become complete, whatever created them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from trainjob.threads import run_on_thread
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.version_skew import ignore_arguments

if TYPE_CHECKING:
    from trainjob.client import Cluster, ObjectEvent

_RETRY_SECONDS = 60.0  # pause after an error that a user may have to fix
# Time after which a fired event counts as sent. The triggerer sends events once a second.
_SENT_SECONDS = 5.0
# The controller may write two completions in another order than their times.
_OVERLAP = timedelta(minutes=10)


class FiredEvents:
    """Record of the completed TrainJobs for which an event was fired, without I/O.

    A completion is new if no event was fired for it and it is not older than the bound in the saved record. The bound
    is the newest completion with a saved event, minus 10 minutes. It keeps the record small for any number of
    TrainJobs. All times of TrainJobs are those of the cluster.
    """

    def __init__(self, saved: Mapping[str, Any] | None = None) -> None:
        """Create an empty record, or restore the record that [to_dict][] returned."""
        saved = saved or {}
        end_times = saved.get("told", {})  # serialized name
        self._end_times = {uid: datetime.fromisoformat(end) for uid, end in end_times.items()}
        self._oldest_end = datetime.fromisoformat(saved["oldest"]) if saved.get("oldest") else None
        self._unsent: dict[str, float] = {}  # uid -> time of an event that may not have been sent yet

    def is_new(self, uid: str, end: datetime) -> bool:
        """Return whether an event is due for the completion of this TrainJob."""
        return uid not in self._end_times and (self._oldest_end is None or end >= self._oldest_end)

    def add(self, uid: str, end: datetime, now: float | None = None) -> None:
        """Record that the completion of a TrainJob needs no further event.

        Args:
            uid: uid of the TrainJob.
            end: time of its completion.
            now: time at which its event is fired, in seconds of any monotonic clock; None if it needs no event.
        """
        self._end_times[uid] = end
        if now is not None:
            self._unsent[uid] = now

    def remove(self, uid: str) -> None:
        """Remove a deleted TrainJob, whose completion will not be checked again."""
        self._end_times.pop(uid, None)
        self._unsent.pop(uid, None)

    def oldest_unsent_time(self) -> float | None:
        """Return the time of the oldest event that may not have been sent yet.

        Returns:
            Seconds of the clock of [add][]; None if there is no such event.
        """
        return next(iter(self._unsent.values()), None)

    def mark_sent(self, until: float) -> None:
        """Record that all events that were fired until this time have been sent."""
        self._unsent = {uid: at for uid, at in self._unsent.items() if at > until}

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON values, without events that may not have been sent yet.

        If these were saved, a restarted triggerer would not fire them again.
        """
        ends = {uid: end for uid, end in self._end_times.items() if uid not in self._unsent}
        # The old bound stays: completions that were dropped from the record must not become new again.
        bounds = [self._oldest_end] if self._oldest_end else []
        bounds += [max(ends.values()) - _OVERLAP] if ends else []
        oldest = max(bounds, default=None)
        recent = {uid: end.isoformat() for uid, end in ends.items() if oldest is None or end >= oldest}
        return {
            "oldest": oldest.isoformat() if oldest else "",
            "told": recent,  # serialized name
        }


class TrainJobEventTrigger(BaseEventTrigger):
    """Fire an event for each TrainJob of a namespace that becomes complete.

    Use it with an `AssetWatcher`.

    The event is `{"reference": {...}, "phase": "Complete", "finished": "...", "model": "s3://..."}`. `model` is the
    TrainJob's annotation `trainjob.dev/model`, which exports of this provider have, or None. All triggers of a
    triggerer with the same connection, namespace and selector share one informer.

    Events are fired for TrainJobs that become complete after the watcher started. The asset's state store keeps a
    record of the fired events. After a restart of the triggerer, the trigger fires for TrainJobs that became complete
    in between, and not again for the others. An event is fired twice if the triggerer is killed within about 5 s after
    the first time.

    A watcher that belongs to several assets keeps no record. Neither does a watcher with Airflow 3.1 or 3.2, which have
    no state store. Without a record, no event is fired for a TrainJob that becomes complete while no triggerer runs.
    """

    def __init__(
        self,
        *,
        namespace: str = "",
        label_selector: str = "",
        name_prefix: str = "",
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        **unknown: Any,
    ) -> None:
        """Create the trigger for the TrainJobs that match all arguments.

        Args:
            namespace: namespace of the TrainJobs; empty means the connection's.
            label_selector: selector in Kubernetes' syntax, such as `team=search,stage in (prod)`; empty for all
                TrainJobs.
            name_prefix: beginning of the TrainJobs' names; empty for all TrainJobs.
            kubernetes_conn_id: ID of a connection of type `trainjob` or `kubernetes`; None finds the cluster as kubectl
                does.
            **unknown: arguments that only a newer version has; they are ignored.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        ignore_arguments(type(self), unknown)
        if not hasattr(self, "asset_state_store"):  # Airflow 3.1 and 3.2
            self.asset_state_store = None
        self.namespace, self.label_selector, self.name_prefix = namespace, label_selector, name_prefix
        self.kubernetes_conn_id = kubernetes_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and all arguments."""
        names = ("namespace", "label_selector", "name_prefix", "kubernetes_conn_id")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch without end, and yield an event for each new completion.

        An error is logged, and the watch starts again after 60 s. Airflow would restart a trigger that has ended at
        once. This includes a record that can't be read: a new one would replace it, and the completions since the last
        event would fire no event.
        """
        from airflow.sdk.exceptions import AirflowRuntimeError

        from trainjob.errors import TrainJobError

        fired: FiredEvents | None = None
        while True:
            try:
                cluster = await TrainJobHook(self.kubernetes_conn_id).get_conn_async()
                fired = fired or await self._load_or_create_record(cluster)
                async with contextlib.aclosing(self._watch_events(cluster, fired)) as events:
                    async for event in events:
                        yield event
            except (TrainJobError, AirflowRuntimeError) as error:
                self.log.error("The TrainJobs can't be watched: %s; the next attempt is in %d s", error, _RETRY_SECONDS)
                await asyncio.sleep(_RETRY_SECONDS)

    async def _watch_events(self, cluster: Cluster, fired: FiredEvents) -> AsyncGenerator[TriggerEvent, None]:
        from trainjob.lifecycle.async_inbox import AsyncInbox

        events = AsyncInbox["ObjectEvent"]()

        def deliver(event: ObjectEvent) -> None:
            if event.error or self._completion_time(event.object):
                events.put(event)

        informer = cluster.trainjob_informer(self.namespace or cluster.namespace, self.label_selector)
        with informer.add_event_handler(None, deliver):
            while True:
                first = fired.oldest_unsent_time()
                timeout = None if first is None else max(0.0, first + _SENT_SECONDS - time.monotonic())
                event = await events.get(timeout)
                if event is None:
                    fired.mark_sent(time.monotonic() - _SENT_SECONDS)
                    await self._save(fired.to_dict())
                    continue
                if event.error:
                    raise event.error
                if trigger_event := self._event_if_new(fired, event.object):
                    yield trigger_event
                if event.object and event.deleted:
                    fired.remove(event.object["metadata"]["uid"])

    def _event_if_new(self, fired: FiredEvents, job: Mapping[str, Any] | None) -> TriggerEvent | None:
        from trainjob.lifecycle import reference_to
        from trainjob.manifest import labels

        end = self._completion_time(job)
        if job is None or end is None or not fired.is_new(job["metadata"]["uid"], end):
            return None
        fired.add(job["metadata"]["uid"], end, time.monotonic())
        return TriggerEvent(
            {
                "reference": reference_to(job, adopted=True).to_dict(),
                "phase": "Complete",
                "finished": end.isoformat(),
                "model": (job["metadata"].get("annotations") or {}).get(labels.MODEL),
            }
        )

    def _completion_time(self, job: Mapping[str, Any] | None) -> datetime | None:
        """Return the time at which the TrainJob became complete.

        Returns:
            None if the TrainJob is not complete, or its name does not begin with `name_prefix`.
        """
        from trainjob.status import build_outcome, derive_verdict

        if job is None or not job["metadata"]["name"].startswith(self.name_prefix):
            return None
        outcome = build_outcome(job, derive_verdict(job))
        return datetime.fromisoformat(outcome.finished.replace("Z", "+00:00")) if outcome.succeeded else None

    # -- the record across restarts ---------------------------------------------------------------------------------

    async def _load_or_create_record(self, cluster: Cluster) -> FiredEvents:
        """Return the saved record, or a new one with the TrainJobs that are complete already.

        A new record is saved at once.
        """
        if saved := await self._load():
            return FiredEvents(saved)
        fired, namespace = FiredEvents(), self.namespace or cluster.namespace
        for job in await run_on_thread(cluster.list_trainjobs, namespace, self.label_selector):
            if end := self._completion_time(job):
                fired.add(job["metadata"]["uid"], end)
        await self._save(fired.to_dict())
        return fired

    @property
    def _state_key(self) -> str:
        """Key of the record in the asset's state store, unique among the asset's watchers."""
        arguments = json.dumps(self.serialize()[1], sort_keys=True)
        return f"trainjobs-{hashlib.sha256(arguments.encode()).hexdigest()[:16]}"

    async def _load(self) -> Mapping[str, Any] | None:
        if self.asset_state_store is None:
            return None
        try:
            saved = await self.asset_state_store.aget(self._state_key)
        except (
            ValueError
        ):  # the watcher belongs to several assets, and Airflow does not pass which of them it is run for
            self.asset_state_store = None
            return None
        return saved if isinstance(saved, dict) else None

    async def _save(self, record: dict[str, Any]) -> None:
        from airflow.sdk.exceptions import AirflowRuntimeError

        if self.asset_state_store is None:
            return
        try:
            await self.asset_state_store.aset(self._state_key, record)
        except AirflowRuntimeError as error:
            self.log.warning(
                "The record of fired events can't be saved, so a restart may fire some of them again: %s", error
            )
