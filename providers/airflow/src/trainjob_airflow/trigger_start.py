"""Wait of a worker until a triggerer has started the trigger of the task that the worker has deferred.

A triggerer starts a trigger about a second after the deferral, or later under load. If a user ends the task before
that, for example by marking it as failed, Airflow deletes the trigger, and no trigger is notified of the decision
(`Trigger.clean_unused`, Airflow 3.1.8 to 3.3.2). So the worker's process ends the TrainJob in this case. It continues
after the deferral until the trigger has written the ID of the deferral to the TrainJob.

Airflow calls `before_stopping` of this module, a listener of the plugin, at the end of each process of a task. It then
has stored the deferral. Airflow 3.3 calls it also if the deferral was refused, because the user had decided before it.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.listeners import hookimpl

from trainjob.threads import run_on_thread
from trainjob_airflow.termination import ENDED_STATES, get_user_decision

if TYPE_CHECKING:
    from trainjob.client import Cluster, ObjectEvent
    from trainjob.lifecycle import JobReference

_CHECK_SECONDS = 1.0
# Airflow ends the process of a task 20 s after its last state was stored (`[core] task_success_overtime`).
_MAX_SECONDS = 12.0
_MAX_ID_AGE = timedelta(minutes=1)
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Deferral:
    """A deferral that a worker has requested for its task.

    Attributes:
        id: time of the deferral, which distinguishes it from others.
        cluster: client of the TrainJob's cluster.
        reference: the TrainJob.
        run_key_digest: digest of the run key of the TrainJob.
        on_kill_action: what happens to the TrainJob if a user has ended the task: `delete`, `suspend` or `keep`.
        task_instance: the task instance.
    """

    id: str
    cluster: Cluster
    reference: JobReference
    run_key_digest: str
    on_kill_action: str
    task_instance: Any


_requested: list[Deferral] = []


def create_deferral_id() -> str:
    """Return an ID for a deferral of this moment."""
    return datetime.now(timezone.utc).isoformat()


def record_deferral(deferral: Deferral) -> None:
    """Record the deferral that this process requests, for [before_stopping][]."""
    _requested[:] = [deferral]


@hookimpl
def before_stopping(component: object) -> None:  # noqa: ARG001 - pluggy passes arguments by name
    """Wait for the start of the trigger if this process has deferred its task.

    Airflow calls this function before a process ends. Under `dag.test()` the process itself runs the trigger
    afterwards, so the function does not wait.
    """
    from airflow.sdk.execution_time import task_runner

    runs_in_supervisor = hasattr(getattr(task_runner, "SUPERVISOR_COMMS", None), "socket")
    if _requested and runs_in_supervisor:
        _wait_for_trigger(_requested.pop())


def _wait_for_trigger(deferral: Deferral) -> None:
    from trainjob.errors import TrainJobError
    from trainjob.lifecycle import cancel
    from trainjob.manifest import labels

    started, reference = threading.Event(), deferral.reference

    def on_event(event: ObjectEvent) -> None:
        has_started = event.object is not None and labels.get_annotation(event.object, labels.DEFERRAL) == deferral.id
        if has_started or event.deleted:
            started.set()

    informer = deferral.cluster.trainjob_informer(reference.namespace, f"{labels.RUN_KEY}={deferral.run_key_digest}")
    deadline = time.monotonic() + _MAX_SECONDS
    with informer.add_event_handler(reference.name, on_event):
        while not started.wait(_CHECK_SECONDS):
            state = get_user_decision(deferral.task_instance)
            if state in ENDED_STATES:
                try:
                    end = cancel(deferral.cluster, reference, deferral.on_kill_action)
                except TrainJobError:
                    _LOGGER.exception("The kill action of TrainJob %s failed", reference)
                else:
                    _LOGGER.info("TrainJob %s: %s: the state of its task is %s", reference, end.text, state)
                    return
            if time.monotonic() >= deadline:
                _LOGGER.warning(
                    "No triggerer has started the trigger of this task within %d s. If the task is marked as failed or "
                    "successful before that, TrainJob %s continues until a sweep ends it",
                    _MAX_SECONDS,
                    reference,
                )
                return


async def announce_start(cluster: Cluster, reference: JobReference, deferral_id: str) -> None:
    """Write the ID of a deferral to its TrainJob when the trigger has started.

    Nothing is written for a deferral of more than a minute ago, whose worker no longer waits. An error is not raised,
    because the worker then requests the task's state.

    Args:
        cluster: client of the TrainJob's cluster.
        reference: the TrainJob.
        deferral_id: the ID; empty if an earlier version of the provider has deferred the task.
    """
    from trainjob.errors import TrainJobError
    from trainjob.manifest import labels

    if not deferral_id or datetime.now(timezone.utc) - datetime.fromisoformat(deferral_id) > _MAX_ID_AGE:
        return
    annotations = {labels.DEFERRAL: deferral_id}
    try:
        await run_on_thread(
            cluster.patch_trainjob, reference.name, reference.namespace, reference.uid, annotations=annotations
        )
    except TrainJobError:
        _LOGGER.debug("The start of the trigger can't be written to TrainJob %s", reference, exc_info=True)
