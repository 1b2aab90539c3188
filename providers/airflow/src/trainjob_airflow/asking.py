"""Whether a task instance is still at work, as far as a worker may ask Airflow (3.3, the task execution API)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainjob_airflow.operators.stopping import ENDED
from trainjob_airflow.run_key import this_airflow

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.lifecycle import RunKey


def has_ended(context: Context, key: RunKey) -> bool | None:
    """Whether the task instance that a run key names has ended, or is not there any more.

    Args:
        context: that of the task that asks.
        key: who asked for a TrainJob.

    Returns:
        None when that can't be told: it is not a task instance of this Airflow, or of a DAG that it does not know,
        or Airflow does not answer.
    """
    if key.engine != "airflow" or key.origin != this_airflow():
        return None
    ti: Any = context["ti"]
    index = int(key.map_index) if key.map_index.isdigit() else None
    try:
        found = ti.get_task_states(dag_id=key.workflow, task_ids=[key.task], run_ids=[key.run], map_index=index)
        states = found.get(key.run, {})
        name = key.task if index is None else f"{key.task}_{index}"
        if name in states:
            # All others, such as deferred or up_for_retry, are at work; so is none, which is about to be scheduled.
            return states[name] in ENDED
        # Gone with its run, which somebody deleted. Of a DAG unknown here it may be another Airflow's.
        ti.get_dag(key.workflow)
    except Exception:  # noqa: BLE001 - whatever the reason, it is not known
        return None
    return True
