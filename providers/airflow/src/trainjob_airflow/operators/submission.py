"""Submission or adoption of a task instance's TrainJob, and its record in Airflow."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainjob_airflow.version_compat import get_task_state_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.sdk import Context

    from trainjob.client import Cluster
    from trainjob.lifecycle import JobReference, Resubmission

STATE_STORE_KEY = "trainjob"
"""Key in the task state store under which the task's newest TrainJob is stored.

The value has name, namespace, uid and attempt, the identity of the cluster, the ID of the connection, number
and renewal of the try that created it, and the same for up to 20 earlier TrainJobs in `earlier`, oldest first.
"""
_MAX_EARLIER = 20
_STORED_FIELDS = ("name", "namespace", "uid", "attempt", "cluster")


def submit_for_task(
    context: Context,
    cluster: Cluster,
    step: Any,
    *,
    namespace: str,
    prefix: str,
    earlier: Resubmission | None = None,
    before_create: Callable[[str, str], None] | None = None,
    is_first_attempt: bool = False,
    connection: str = "",
    adopt_undelivered: bool = True,
    on_submitted: Callable[[Mapping[str, Any]], None] | None = None,
    on_notice: Callable[[str], None] | None = None,
) -> JobReference:
    """Submit or adopt the TrainJob of a task instance, and record it in Airflow.

    An earlier TrainJob is adopted if it runs, if it has succeeded since the task was last cleared, or if no task has
    ended with its result yet. Otherwise a new attempt is created. The run key identifies the TrainJob in the cluster.

    The task state store of Airflow 3.3 also has a record of the TrainJob, which survives retries, crashes and clears.
    With it, the TrainJob is found even if the run key or the namespace has changed, for example after a change of
    `[api] base_url`. Airflow's UI and API show the record from the TrainJob's creation on.

    Args:
        context: context of the task.
        cluster: client of the cluster.
        step: the step to run.
        namespace: namespace of the TrainJob; empty means the connection's.
        prefix: beginning of the TrainJob's name.
        earlier: see `trainjob.lifecycle.submit`.
        before_create: see `trainjob.lifecycle.submit`.
        is_first_attempt: whether this process has not submitted the task before, and does not continue it after a
            deferral.
        connection: ID of the connection of the cluster, for the record; empty for none.
        adopt_undelivered: see `trainjob.lifecycle.submit`.
        on_submitted: see `trainjob.lifecycle.submit`.
        on_notice: see `trainjob.lifecycle.submit`.

    Returns:
        A reference to the TrainJob.

    Raises:
        TrainJobError: see `trainjob.lifecycle.submit`.
    """
    from trainjob.lifecycle import submit
    from trainjob_airflow.lineage import parent_run_variables
    from trainjob_airflow.run_key import get_renewal, get_run_key, get_run_start, is_new_run_key

    row, renewal = _read_row(context), get_renewal(context)
    known = _parse_row(row)
    if known is not None and row.get("renewal") != renewal:
        known = replace(known, cluster=None)  # a user has cleared the task, maybe to move it to this cluster
    reference = submit(
        cluster,
        step,
        get_run_key(context),
        namespace=namespace,
        name_prefix=prefix,
        since=get_run_start(context),
        variables=parent_run_variables(context),
        renewal=renewal,
        earlier=earlier,
        known=known,
        before_create=before_create,
        first_submission=is_first_attempt and row is None and is_new_run_key(context),
        adopt_undelivered=adopt_undelivered,
        on_submitted=on_submitted,
        on_notice=on_notice,
    )
    if known is None or known.uid != reference.uid:
        _store_reference(context, reference, row, connection, renewal)
    return reference


def load_reference(context: Context) -> JobReference | None:
    """Return the task's newest TrainJob that Airflow's task state store has.

    Returns:
        None if the store has no TrainJob or cannot be read. A failed read is logged as a warning.
    """
    return _parse_row(_read_row(context))


def _read_row(context: Context) -> Any:
    """Return the row in the task state store; None if there is no row.

    If the store can't be read or does not exist, an empty dict is returned, because an earlier process may have
    submitted the task.
    """
    store = get_task_state_store(context)
    if store is None:
        return {}
    try:
        return store.get(STATE_STORE_KEY)
    except Exception:
        logging.getLogger(__name__).warning(
            "The TrainJob of an earlier try is looked up by its run key only: Airflow's task state store can't be read",
            exc_info=True,
        )
        return {}


def _parse_row(row: Any) -> JobReference | None:
    from trainjob.errors import IncompatibleVersion
    from trainjob.lifecycle import JobReference

    try:
        return JobReference.from_dict(row)
    except IncompatibleVersion:
        return None


def _list_earlier(row: Any) -> list[dict[str, Any]]:
    """Return the TrainJobs that a row in the task state store names, oldest first."""
    if _parse_row(row) is None:
        return []
    newest = {name: value for name, value in row.items() if name != "earlier"}
    return [*(row.get("earlier") or []), newest][-_MAX_EARLIER:]


def _store_reference(
    context: Context, reference: JobReference, earlier_row: Any, connection: str, renewal: str
) -> None:
    """Store a reference to the TrainJob in Airflow's task state store.

    Those of earlier tries stay in it. The page `TrainJobs` shows the links of all of them, also after their deletion.

    A failed write is only logged as a warning, because the TrainJob exists by now and carries its run key.
    """
    store = get_task_state_store(context)
    if store is None:
        return
    try:
        values = reference.to_dict()
        row = {name: values[name] for name in _STORED_FIELDS}
        tried = {"try_number": context["ti"].try_number, "connection": connection, "renewal": renewal}
        store.set(STATE_STORE_KEY, {**row, **tried, "earlier": _list_earlier(earlier_row)})
    except Exception:
        logging.getLogger(__name__).warning(
            "The TrainJob is not recorded in Airflow: its task state store can't be written", exc_info=True
        )
