"""Who asks, or asked, in Airflow's words; and which of a person's wishes it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import conf

from trainjob.errors import InvalidSpec, Problem

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.client import Cluster
    from trainjob.lifecycle import JobSelector, RunKey

_NEEDED, _OPTIONAL = ("workflow", "task", "run"), ("map_index", "engine", "origin")


def run_key(context: Context) -> RunKey:
    """The run key of a task instance: stable over retries, different for mapped instances and installations."""
    from trainjob.lifecycle import RunKey

    ti = context["ti"]
    map_index = ti.map_index if ti.map_index is not None else -1
    return RunKey(
        engine="airflow",
        workflow=ti.dag_id,
        task=ti.task_id,
        run=ti.run_id,
        map_index="" if map_index < 0 else str(map_index),
        origin=this_airflow(),
    )


def wanted(cluster: Cluster, *, name: str, run_key: Mapping[str, Any] | None, namespace: str) -> JobSelector:
    """The TrainJob that a sensor's arguments name.

    Args:
        cluster: whose namespace counts where none is given.
        name: its name, or empty.
        run_key: who asked for it; see [run_key_of][]. None with a name.
        namespace: its namespace, or empty.

    Raises:
        InvalidSpec: the arguments name no TrainJob.
    """
    from trainjob.lifecycle import JobSelector

    return JobSelector(namespace or cluster.namespace, name, None if run_key is None else run_key_of(run_key))


def run_key_of(values: Mapping[str, Any]) -> RunKey:
    """The run key that a person names: a task instance of this Airflow, unless the values say otherwise.

    Args:
        values: the fields of `trainjob.RunKey`; `workflow`, `task` and `run` must be there.

    Raises:
        InvalidSpec: a field is missing, empty or unknown.
    """
    from trainjob.lifecycle import RunKey

    check_run_key_fields(values)
    given = {name: "" if value in (None, -1, "-1") else str(value) for name, value in values.items()}
    for name in _NEEDED:
        if not given[name]:
            raise InvalidSpec(Problem(f"run_key.{name}", "an empty text", "name whose TrainJob it is"))
    engine = given.pop("engine", "airflow")
    origin = given.pop("origin", this_airflow() if engine == "airflow" else "")
    return RunKey(engine=engine, origin=origin, **given)


def check_run_key_fields(values: Mapping[str, Any]) -> None:
    """Whether these are the fields of a run key; what they hold may still be templates.

    Raises:
        InvalidSpec: a field is missing or unknown.
    """
    allowed = f"give a dict with {', '.join(_NEEDED)} and, where needed, {', '.join(_OPTIONAL)}"
    if not isinstance(values, Mapping):
        raise InvalidSpec(Problem("run_key", repr(values), allowed))
    wrong = [name for name in values if name not in (*_NEEDED, *_OPTIONAL)]
    missing = [name for name in _NEEDED if name not in values]
    if wrong or missing:
        raise InvalidSpec(Problem("run_key", f"a dict with {', '.join(map(repr, values)) or 'nothing'}", allowed))


def this_airflow() -> str:
    """What tells this Airflow from others whose TrainJobs share a namespace with its own: its address."""
    return conf.get("api", "base_url", fallback="") or ""


def renewal(context: Context) -> str:
    """Which of a person's wishes to have the work done again this is: finished work of an earlier one is repeated.

    Every clear raises `max_tries` of a task that has run (`clear_task_instances`, and `process_executor_events` for one
    that was running; Airflow 3.3), and nothing else changes it: no retry, no crash of a worker or a scheduler.
    """
    return str(context["ti"].max_tries)
