"""Trigger that waits for a TrainJob which another task, DAG, pipeline or user created."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainjob_airflow.deferral import delay_event
from trainjob_airflow.hooks.trainjob import DEFAULT_CONNECTION, TrainJobHook
from trainjob_airflow.version_skew import ignore_arguments


class TrainJobEndTrigger(BaseTrigger):
    """Fire once, when the TrainJob has ended; killing its task does not affect the TrainJob.

    All triggers of a triggerer with the same connection and namespace share one informer. The events are:

    * `{"reference": {...}, "outcome": {...}}`: the TrainJob has ended, with success or not.
    * `{"error": "...", "kind": "WaitTimeout", "retryable": true}`: the wait ended before that; `kind` is the error's
      class.
    """

    def __init__(
        self,
        *,
        namespace: str = "",
        name: str = "",
        run_key: dict[str, Any] | None = None,
        deadline: float | None = None,
        kubernetes_conn_id: str | None = DEFAULT_CONNECTION,
        cluster_context: str | None = None,
        in_cluster: bool | None = None,
        cluster: dict[str, Any] | None = None,
        **unknown: Any,
    ) -> None:
        """Create the trigger; all arguments are JSON values.

        Args:
            namespace: namespace of the TrainJob; empty means the connection's.
            name: name of the TrainJob; empty if `run_key` is given.
            run_key: run key of the TrainJob, as in `TrainJobSensor`; None if `name` is given.
            deadline: Unix time in seconds at which the wait ends; None means no limit. A restart of the triggerer does
                not change it.
            kubernetes_conn_id: ID of the Airflow connection, which the triggerer reads.
            cluster_context: context of the kubeconfig; None means the connection's.
            in_cluster: whether to use the service account of the triggerer's pod; None means the connection's setting.
            cluster: identity of the cluster in which the worker looked, as `trainjob.client.ClusterIdentity.to_dict`
                returns it; None if no worker did.
            **unknown: arguments that only a newer version has; they are ignored.
        """
        super().__init__()  # type: ignore[no-untyped-call]
        ignore_arguments(type(self), unknown)
        self.namespace, self.name, self.run_key = namespace, name, run_key
        self.deadline, self.kubernetes_conn_id = deadline, kubernetes_conn_id
        self.cluster_context, self.in_cluster, self.cluster = cluster_context, in_cluster, cluster

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and all arguments."""
        names = (
            "namespace",
            "name",
            "run_key",
            "deadline",
            "kubernetes_conn_id",
            "cluster_context",
            "in_cluster",
            "cluster",
        )
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, write each phase to the task's log, and yield the event."""
        started_at = time.monotonic()
        event = TriggerEvent(await self._wait())
        await delay_event(started_at, self.task_instance)
        yield event

    async def _wait(self) -> dict[str, Any]:
        from trainjob.client import ClusterIdentity
        from trainjob.errors import TrainJobError
        from trainjob.lifecycle import wait_external
        from trainjob.lifecycle.cluster_check import check_same_cluster
        from trainjob_airflow.run_key import create_job_selector, select_run_key_fields
        from trainjob_airflow.task_errors import event_from_error

        try:
            hook = TrainJobHook.of(self)
            cluster = await hook.get_conn_async()
            check_same_cluster(cluster, ClusterIdentity.from_dict(self.cluster))
            run_key = self.run_key and select_run_key_fields(self.run_key)
            job = create_job_selector(cluster, name=self.name, run_key=run_key, namespace=self.namespace)
            left = None if self.deadline is None else timedelta(seconds=max(0.0, self.deadline - time.time()))
            finished_job = await wait_external(cluster, job, timeout=left, report=self.log.info)
        except TrainJobError as error:
            return event_from_error(error)
        return {"reference": finished_job.reference.to_dict(), "outcome": finished_job.outcome.to_dict()}
