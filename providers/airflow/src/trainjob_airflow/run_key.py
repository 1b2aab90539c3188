"""Who asks, in Airflow's words; and whether this try may take over what an earlier one left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import conf

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.run import Adopt, RunKey


def run_key(context: Context) -> RunKey:
    """The run key of a task instance: stable over retries, different for mapped instances and installations."""
    from trainjob.run import RunKey

    ti = context["ti"]
    map_index = ti.map_index if ti.map_index is not None else -1
    return RunKey(
        engine="airflow",
        workflow=ti.dag_id,
        task=ti.task_id,
        run=ti.run_id,
        map_index="" if map_index < 0 else str(map_index),
        origin=conf.get("api", "base_url", fallback="") or "",
    )


def adoption(context: Context) -> Adopt:
    """The first try after a person cleared the task repeats finished work; first tries and retries take it over.

    A first try can find work of its own when its process was killed and it is run again. Airflow raises `max_tries` on
    a clear, so that the tries that are left tell a cleared task from a retried one (seen on Airflow 3.3.2 for first
    tries, retries, and clears of succeeded, retried and running tasks).
    """
    from trainjob.run import Adopt

    ti: Any = context["ti"]
    all_tries_left = ti.max_tries - ti.try_number + 1 == (context["task"].retries or 0)
    return Adopt.RUNNING if all_tries_left and ti.try_number > 1 else Adopt.SUCCEEDED
