"""Submit or adopt the TrainJob of a task instance, and have Airflow remember it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import Context

    from trainjob.client import Cluster
    from trainjob.lifecycle import JobReference

TRAINJOB = "trainjob"
"""The key in the task's state store: name, namespace, uid and attempt of its newest TrainJob."""
_REMEMBERED = ("name", "namespace", "uid", "attempt")


def submit_for(
    context: Context,
    cluster: Cluster,
    step: Any,
    *,
    namespace: str,
    prefix: str,
    before_create: Callable[[str, str], None] | None = None,
) -> JobReference:
    """The TrainJob that works for this task instance: an earlier one that still counts, or a new attempt.

    It is found by its run key, in the cluster. What Airflow remembers of it in the task's state store, which survives
    retries, crashes and clears, finds it also when the run key or the namespace is another one now, as after a move
    of `[api] base_url`; and it shows the TrainJob in Airflow's UI and API from its creation on.

    Args:
        context: the task's.
        cluster: where.
        step: what to do.
        namespace: where; empty means the connection's.
        prefix: begins the TrainJob's name.
        before_create: see `trainjob.lifecycle.submit`.

    Raises:
        TrainJobError: see `trainjob.lifecycle.submit`.
    """
    from trainjob.lifecycle import submit
    from trainjob_airflow.lineage import parent_variables
    from trainjob_airflow.run_key import renewal, run_key

    known = remembered(context)
    reference = submit(
        cluster,
        step,
        run_key(context),
        namespace=namespace,
        prefix=prefix,
        since=context["dag_run"].start_date,
        variables=parent_variables(context),
        renewal=renewal(context),
        known=known,
        before_create=before_create,
    )
    if known is None or known.uid != reference.uid:
        _remember(context, reference)
    return reference


def remembered(context: Context) -> JobReference | None:
    """Return the newest TrainJob of the task that Airflow's task state store has, if it has one and can be read."""
    from trainjob.lifecycle import JobReference

    try:
        row: Any = context["task_state_store"].get(TRAINJOB)
    except Exception:
        logging.getLogger(__name__).warning("Airflow's task state store can't be read", exc_info=True)
        return None
    if not isinstance(row, dict) or not all(name in row for name in _REMEMBERED):
        return None
    return JobReference(**{name: row[name] for name in _REMEMBERED})


def _remember(context: Context, reference: JobReference) -> None:
    """The TrainJob exists by now and carries its run key: that Airflow can't note it is no reason to fail."""
    try:
        context["task_state_store"].set(TRAINJOB, {name: getattr(reference, name) for name in _REMEMBERED})
    except Exception:
        logging.getLogger(__name__).warning("Airflow's task state store can't be written", exc_info=True)
