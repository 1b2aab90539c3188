"""Run keys and renewals of Airflow task instances.

A run key identifies the task instance that a TrainJob belongs to. A renewal changes whenever a user clears the task.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from trainjob.errors import InvalidSpec, Problem
from trainjob_airflow.version_compat import conf

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.client import Cluster
    from trainjob.lifecycle import JobSelector, RunKey

# In this time, no run can start, create a TrainJob and be deleted, and another run of the same ID start after it.
_PROMPT_START = timedelta(seconds=5)
_MAP_INDEX = re.compile(r"[0-9]{0,9}")
_MAX_NAME_LENGTH = 250  # of IDs in Airflow's database (airflow.models.base.ID_LEN, Airflow 3.3)
_REQUIRED, _OPTIONAL = ("workflow", "task", "run"), ("map_index", "engine", "origin")


def get_run_key(context: Context) -> RunKey:
    """Return the run key of a task instance.

    The key stays the same over retries. It differs between mapped task instances and between Airflow installations.
    """
    from trainjob.lifecycle import RunKey

    ti = context["ti"]
    map_index = ti.map_index if ti.map_index is not None else -1
    return RunKey(
        engine="airflow",
        workflow=ti.dag_id,
        task=ti.task_id,
        run=ti.run_id,
        map_index="" if map_index < 0 else str(map_index),
        origin=get_base_url(),
    )


def get_task_instance(key: RunKey) -> tuple[str, str, str, int] | None:
    """Return DAG, run, task and map index of a run key; the map index of a plain task is -1.

    It is None if the key is not one of this Airflow, or if Airflow can have no such task instance: users can edit the
    annotation with the run key, and Airflow's database refuses some texts.
    """
    names = (key.workflow, key.run, key.task)
    if (key.engine, key.origin) != ("airflow", get_base_url()) or not _MAP_INDEX.fullmatch(key.map_index):
        return None
    if not all(name and name.isprintable() and len(name) <= _MAX_NAME_LENGTH for name in names):
        return None
    return key.workflow, key.run, key.task, int(key.map_index or -1)


def create_job_selector(
    cluster: Cluster, *, name: str, run_key: Mapping[str, Any] | None, namespace: str
) -> JobSelector:
    """Return the selector of the TrainJob that a sensor's arguments name.

    Args:
        cluster: client of the cluster; its namespace is used if `namespace` is empty.
        name: name of the TrainJob; empty if `run_key` is given.
        run_key: fields of the TrainJob's run key, see [parse_run_key][]; None if `name` is given.
        namespace: namespace of the TrainJob; may be empty.

    Raises:
        InvalidSpec: the arguments name no TrainJob.
    """
    from trainjob.lifecycle import JobSelector

    return JobSelector(namespace or cluster.namespace, name, None if run_key is None else parse_run_key(run_key))


def parse_run_key(fields: Mapping[str, Any]) -> RunKey:
    """Return the run key with the given fields, by default of a task instance of this Airflow.

    Args:
        fields: the fields of `trainjob.RunKey`. `workflow`, `task` and `run` are required. `engine` defaults to
            `airflow`, and `origin` to this Airflow's address, or to an empty string for another engine.

    Raises:
        InvalidSpec: a field is missing, empty or unknown.
    """
    from trainjob.lifecycle import RunKey

    check_run_key_fields(fields)
    texts = {name: "" if value in (None, -1, "-1") else str(value) for name, value in fields.items()}
    for name in _REQUIRED:
        if not texts[name]:
            raise InvalidSpec(
                Problem(f"run_key.{name}", "an empty string", "give a value; it identifies the task of the TrainJob")
            )
    engine = texts.pop("engine", "airflow")
    origin = texts.pop("origin", get_base_url() if engine == "airflow" else "")
    return RunKey(engine=engine, origin=origin, **texts)


def check_run_key_fields(fields: Mapping[str, Any]) -> None:
    """Raise an error unless the keys of a dict are the fields of a run key.

    The values are not checked, because they may still be templates.

    Raises:
        InvalidSpec: a field is missing or unknown, or `fields` is not a mapping.
    """
    allowed = f"give a dict with {', '.join(_REQUIRED)} and, if needed, {', '.join(_OPTIONAL)}"
    if not isinstance(fields, Mapping):
        raise InvalidSpec(Problem("run_key", repr(fields), allowed))
    wrong = [name for name in fields if name not in (*_REQUIRED, *_OPTIONAL)]
    missing = [name for name in _REQUIRED if name not in fields]
    if wrong or missing:
        raise InvalidSpec(Problem("run_key", f"a dict with {', '.join(map(repr, fields)) or 'nothing'}", allowed))


def select_run_key_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run key that this version knows.

    A newer version may have stored more.
    """
    return {name: value for name, value in fields.items() if name in (*_REQUIRED, *_OPTIONAL)}


def get_base_url() -> str:
    """Return the address of this Airflow, `[api] base_url`; empty if it is not configured.

    The address distinguishes this Airflow's TrainJobs from those of another Airflow in the same namespace.
    """
    return conf.get("api", "base_url", fallback="") or ""


def get_renewal(context: Context) -> str:
    """Return a text that changes whenever a user clears the task.

    A TrainJob that succeeded under another value is adopted only if no task has ended with its result. So a cleared
    task repeats finished work.

    The text is the `max_tries` of the task instance. Every clear raises `max_tries` of a task that has run
    (`clear_task_instances`, and `process_executor_events` for a task that was running; Airflow 3.3). Nothing else
    changes it: no retry, and no crash of a worker or a scheduler.
    """
    return str(context["ti"].max_tries)


def get_run_start(context: Context) -> datetime | None:
    """Return the time before which no TrainJob of a DAG run was created.

    A TrainJob from before it belongs to a deleted run of the same ID. A clear of a finished run sets its start time
    anew (`clear_task_instances`, Airflow 3.3), so the time of a cleared run is the one from which it was due.
    """
    run = context["dag_run"]
    return run.run_after if run.clear_number else run.start_date


def is_new_run_key(context: Context) -> bool:
    """Return whether no earlier process can have used the run key of a task instance.

    This is so for the first start of the first try, because Airflow counts up the tries for each retry, clear and lost
    process, and the reschedules within a try. It is not enough, because a run that was deleted can be created again
    under the same ID, for example by the scheduler. Both runs of an ID that Airflow generates have the same
    `run_after`, which is part of the ID (Airflow 3.3, `DagRun.generate_run_id`). So this function returns True only if
    the run also started promptly after that time. `dag.test()` may set both times to the same value.
    """
    ti, run = context["ti"], context["dag_run"]
    if ti.try_number != 1 or context.get("task_reschedule_count") or run.start_date is None:
        return False
    is_generated_id = run.run_after.isoformat() in ti.run_id
    return is_generated_id and timedelta(0) < run.start_date - run.run_after <= _PROMPT_START
