"""Rows of TrainJobs that have ended and no longer exist in their cluster, from Airflow's database.

A task's XCom `progress` has the end of its newest TrainJob, and the XCom `usage` or the task state store has its name.
The callers check the permissions of the user first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import Text, and_, cast, select

from trainjob.status import Phase
from trainjob_airflow.operators.submission import STATE_STORE_KEY
from trainjob_airflow.plugins.job_list import format_time
from trainjob_airflow.plugins.stored_json import is_number, parse_stored, parse_xcom, select_progress
from trainjob_airflow.plugins.task_records import InstanceKey, select_values
from trainjob_airflow.task_failure import FAILURE_KEY
from trainjob_airflow.task_progress import PROGRESS_KEY
from trainjob_airflow.usage_records import XCOM_KEY as USAGE_KEY
from trainjob_airflow.version_compat import get_task_state_store_model

MAX_ENDED = 2000
_ENDED_STATES = ("success", "failed")
_IS_SAME_INSTANCE = and_(
    XComModel.dag_id == TaskInstance.dag_id,
    XComModel.run_id == TaskInstance.run_id,
    XComModel.task_id == TaskInstance.task_id,
    XComModel.map_index == TaskInstance.map_index,
)


@dataclass(frozen=True)
class HistoryScope:
    """Task instances whose TrainJobs are looked up.

    Attributes:
        since: tasks that ended earlier are left out.
        until: tasks that started later are left out; None for no limit.
        dag: ID of the DAG; empty for all.
        run: ID of the DAG run; empty for all.
        task: task ID; empty for all.
    """

    since: datetime
    until: datetime | None = None
    dag: str = ""
    run: str = ""
    task: str = ""


def list_dags_with_progress(since: datetime) -> set[str]:
    """Return the DAGs of the tasks that have written their progress since a time."""
    statement = select(XComModel.dag_id).distinct()
    statement = statement.where(XComModel.key == PROGRESS_KEY, XComModel.timestamp >= since)
    with create_session() as session:
        return set(session.scalars(statement))


def read_ended_rows(dags: Collection[str], scope: HistoryScope) -> list[dict[str, Any]]:
    """Return a row for the newest TrainJob of each task instance that ended, at most 2,000.

    The newest are included. A row has the fields of a TrainJob in a cluster, as far as Airflow knows them: `created` is
    the start of the task's last try, and `name` is empty if no record has it.

    Args:
        dags: IDs of the DAGs that the user may read.
        scope: the task instances.
    """
    times = (TaskInstance.start_date, TaskInstance.end_date)
    identity = (TaskInstance.dag_id, TaskInstance.run_id, TaskInstance.task_id, TaskInstance.map_index)
    value = cast(XComModel.value, Text).label("text")
    statement = select(*identity, TaskInstance.state, *times, value).join(XComModel, _IS_SAME_INSTANCE)
    statement = statement.where(
        XComModel.key == PROGRESS_KEY,
        TaskInstance.dag_id.in_(dags),
        TaskInstance.state.in_(_ENDED_STATES),
        TaskInstance.end_date >= scope.since,
        *([TaskInstance.start_date <= scope.until] if scope.until else []),
        *([TaskInstance.run_id == scope.run] if scope.run else []),
        *([TaskInstance.task_id == scope.task] if scope.task else []),
    )
    with create_session() as session:
        found = session.execute(statement.order_by(TaskInstance.end_date.desc()).limit(MAX_ENDED)).all()
    rows = [_build_row(each) for each in found]
    jobs = _read_jobs({(row["dag"], row["run"], row["task"], row["index"]) for row in rows})
    return [{**row, **jobs.get((row["dag"], row["run"], row["task"], row["index"]), {})} for row in rows]


def _build_row(found: Any) -> dict[str, Any]:
    progress = select_progress(parse_xcom(found.text or "") or {})
    succeeded = found.state == "success"
    phase = str(progress.get("phase") or "")
    # The progress of a task that was stopped has the phase before its TrainJob was deleted.
    if phase not in (Phase.COMPLETE.value, Phase.FAILED.value):
        phase = Phase.COMPLETE.value if succeeded else Phase.DELETED.value
    return {
        **dict.fromkeys(("connection", "namespace", "name", "uid", "queue", "step", "last_seen"), ""),
        "attempt": None,
        "dag": found.dag_id,
        "run": found.run_id,
        "task": found.task_id,
        "index": found.map_index,
        "phase": phase,
        "finished": True,
        "reason": "" if succeeded else str(progress.get("reason") or ""),
        "created": format_time(found.start_date or found.end_date),
        "ended": format_time(found.end_date),
        "trainer_status": {},
        "usage": None,
        "newest": True,
    }


def _read_jobs(instances: Collection[InstanceKey]) -> dict[InstanceKey, dict[str, Any]]:
    """Return the recorded fields that identify the newest TrainJob of each instance."""
    model = get_task_state_store_model()
    found: dict[InstanceKey, dict[str, Any]] = {}
    for source, keys in ((XComModel, (FAILURE_KEY, USAGE_KEY)), (model, (STATE_STORE_KEY,))):
        if source is not None:
            # The records of the usage and of the store replace that of the failure, which may be of an earlier try.
            for row in sorted(select_values(source, instances, keys), key=lambda row: row.key != FAILURE_KEY):
                instance = (row.dag_id, row.run_id, row.task_id, row.map_index)
                found.setdefault(instance, {}).update(_parse_job(row.key, row.text or ""))
    return found


def _parse_job(key: str, text: str) -> dict[str, Any]:
    """Return the known fields of the newest TrainJob in a record that a task has written."""
    try:
        value = parse_stored(text)
        value = parse_stored(value) if isinstance(value, str) else value
    except ValueError:
        return {}
    if key == USAGE_KEY:  # one record for each TrainJob, the newest last
        value = value[-1] if isinstance(value, list) and value else {}
    if not isinstance(value, Mapping):
        return {}
    names: Mapping[str, Any] = {name: value.get(name) for name in ("namespace", "name", "uid", "connection")}
    if key == USAGE_KEY:
        names = {**names, "name": value.get("job")}
    elif key == FAILURE_KEY:
        namespace, _, name = str(value.get("trainjob") or "").partition("/")
        names = {"namespace": namespace, "name": name, "uid": value.get("uid")}
    attempt = value.get("attempt")
    numbers = {"attempt": attempt} if is_number(attempt) else {}
    return {**{name: text for name, text in names.items() if isinstance(text, str) and text}, **numbers}
