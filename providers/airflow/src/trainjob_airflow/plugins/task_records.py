"""Reads of Airflow's database: task instances, their XComs, rendered fields and recorded TrainJobs.

The callers check the permissions of the user first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from airflow.models.renderedtifields import RenderedTaskInstanceFields
from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.session import create_session
from sqlalchemy import Text, and_, cast, select

from trainjob_airflow.operators.submission import STATE_STORE_KEY
from trainjob_airflow.plugins.stored_json import parse_reference, parse_xcom, select_progress
from trainjob_airflow.plugins.xcom_objects import XComObject, XComObjects, describe_reference, find_object
from trainjob_airflow.task_progress import PROGRESS_KEY
from trainjob_airflow.version_compat import get_task_state_store_model

InstanceKey = tuple[str, str, str, int]
"""DAG, run, task and map index of a task instance; the map index of a plain task is -1."""
MAX_INSTANCES = 1000
_MAX_VALUES_OF_QUERY = 500
T = TypeVar("T")
_OBJECTS = XComObjects()


@dataclass(frozen=True)
class InstanceRecord:
    """A task instance in Airflow's database.

    Attributes:
        key: its key.
        operator: name of its operator.
        state: its state; empty if it has none yet.
        try_number: number of its newest try.
        rendered_fields: its rendered template fields; empty if they are not read, not known or no longer stored.
    """

    key: InstanceKey
    operator: str
    state: str
    try_number: int
    rendered_fields: Mapping[str, Any]


@dataclass
class TaskXComs:
    """XComs of one task instance.

    Attributes:
        progress: the XCom `progress`, only the fields with the right types.
        others: the other XComs by key, as far as they are dicts.
        unreadable: for each XCom that is stored elsewhere and not read, a text that says why, and where it is.
    """

    progress: dict[str, Any] = field(default_factory=dict)
    others: dict[str, dict[str, Any]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, text: str, problem: str = "") -> None:
        """Add an XCom.

        Args:
            key: its key.
            text: its value as JSON.
            problem: why a value that is stored elsewhere can't be read; empty if the database has the value.
        """
        value = parse_xcom(text)
        if value is None:
            self.unreadable |= {key: problem} if problem else {}
        elif key == PROGRESS_KEY:
            self.progress = select_progress(value)
        else:
            self.others[key] = value


def read_xcoms(instances: Iterable[InstanceKey], keys: Collection[str]) -> dict[InstanceKey, TaskXComs]:
    """Return the XComs of some task instances, as far as they exist.

    A value that Airflow's `XComObjectStorageBackend` has written to an object store is read from there.
    """
    found: dict[InstanceKey, TaskXComs] = {}
    elsewhere: list[tuple[InstanceKey, str, str, XComObject | None]] = []
    for row in select_values(XComModel, instances, keys, XComModel.timestamp):
        instance: InstanceKey = (row.dag_id, row.run_id, row.task_id, row.map_index)
        if row.text is None:
            continue
        if reference := parse_reference(row.text):
            location = find_object(reference, instance, str(row.timestamp))
            elsewhere.append((instance, row.key, reference, location))
        else:
            found.setdefault(instance, TaskXComs()).add(row.key, row.text)
    texts = _OBJECTS.read({location for *_, location in elsewhere if location})
    for instance, key, reference, location in elsewhere:
        place = describe_reference(reference)
        problem = f"it can't be read ({place})" if location else f"another XCom backend stores it ({place})"
        text = texts.get(location, "") if location else ""
        found.setdefault(instance, TaskXComs()).add(key, text, problem if place else "")
    return found


def select_values(model: Any, instances: Iterable[InstanceKey], keys: Collection[str], *columns: Any) -> Iterator[Any]:
    """Yield the rows of a table of values, such as XComs, that belong to some task instances.

    A row has the instance's identity, `key` and `text`, and these columns. The value is read as text, because a driver
    that decodes JSON itself would raise an error for one value in place of all of them.
    """
    identity = (model.dag_id, model.run_id, model.task_id, model.map_index)
    statement = select(*identity, model.key, cast(model.value, Text).label("text"), *columns)
    for part in split_for_queries(sorted(set(instances))):
        filters = [column.in_(set(each)) for column, each in zip(identity, zip(*part, strict=True), strict=True)]
        with create_session() as session:
            rows = session.execute(statement.where(model.key.in_(keys), *filters)).all()
        wanted = set(part)
        yield from (row for row in rows if tuple(row[:4]) in wanted)


def split_for_queries(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield at most 500 values at once.

    A database limits the number of values of a statement.
    """
    for start in range(0, len(values), _MAX_VALUES_OF_QUERY):
        yield values[start : start + _MAX_VALUES_OF_QUERY]


def read_instance(instance: InstanceKey) -> InstanceRecord | None:
    """Return a task instance without its rendered fields; None if it does not exist."""
    dag, run, task, index = instance
    found = _read_instances(dag, run, TaskInstance.task_id == task, TaskInstance.map_index == index)
    return found[0] if found else None


def list_succeeded_instances(instance: InstanceKey, limit: int) -> list[InstanceKey]:
    """Return the newest instances of a task that succeeded in any run, oldest first.

    Args:
        instance: any instance of the task; the others have its map index.
        limit: maximum number of instances.
    """
    dag, _, task, index = instance
    statement = select(TaskInstance.run_id).where(
        TaskInstance.dag_id == dag,
        TaskInstance.task_id == task,
        TaskInstance.map_index == index,
        TaskInstance.state == "success",
    )
    with create_session() as session:
        runs = session.scalars(statement.order_by(TaskInstance.end_date.desc()).limit(limit)).all()
    return [(dag, run, task, index) for run in reversed(runs)]


def read_instances_of_run(dag: str, run: str, task: str = "") -> list[InstanceRecord]:
    """Return the task instances of a DAG run, at most 1,000, with their rendered fields.

    Args:
        dag: ID of the DAG.
        run: ID of the run.
        task: task ID; empty for all tasks.
    """
    return _read_instances(dag, run, *([TaskInstance.task_id == task] if task else []), with_fields=True)


def _read_instances(dag: str, run: str, *filters: Any, with_fields: bool = False) -> list[InstanceRecord]:
    columns = [TaskInstance.task_id, TaskInstance.map_index, TaskInstance.operator, TaskInstance.state]
    statement = select(*columns, TaskInstance.try_number, *([_FIELDS] if with_fields else []))
    if with_fields:
        statement = statement.outerjoin(RenderedTaskInstanceFields, _IS_SAME_INSTANCE)
    statement = statement.where(TaskInstance.dag_id == dag, TaskInstance.run_id == run, *filters)
    with create_session() as session:
        rows = session.execute(
            statement.order_by(TaskInstance.task_id, TaskInstance.map_index).limit(MAX_INSTANCES)
        ).all()
    return [
        InstanceRecord(
            (dag, run, row.task_id, row.map_index),
            row.operator or "",
            str(row.state or ""),
            row.try_number,
            (row.rendered_fields or {}) if with_fields else {},
        )
        for row in rows
    ]


_FIELDS = RenderedTaskInstanceFields.rendered_fields
_IS_SAME_INSTANCE = and_(
    RenderedTaskInstanceFields.dag_id == TaskInstance.dag_id,
    RenderedTaskInstanceFields.run_id == TaskInstance.run_id,
    RenderedTaskInstanceFields.task_id == TaskInstance.task_id,
    RenderedTaskInstanceFields.map_index == TaskInstance.map_index,
)


def read_recorded_attempts(instance: InstanceKey) -> list[dict[str, Any]]:
    """Return the TrainJobs that the task recorded in its state store, oldest first.

    The result is empty with Airflow 3.1 and 3.2, which have no such store.
    """
    model = get_task_state_store_model()
    if model is None:
        return []
    dag, run, task, index = instance
    statement = select(model.value).where(
        model.dag_id == dag,
        model.run_id == run,
        model.task_id == task,
        model.map_index == index,
        model.key == STATE_STORE_KEY,
    )
    with create_session() as session:
        text = session.scalar(statement)
    row = parse_xcom(text) if isinstance(text, str) else None
    if row is None:  # a state store backend of the deployment may store a reference instead of the value
        return []
    earlier = row.get("earlier")
    return [each for each in [*(earlier if isinstance(earlier, list) else []), row] if isinstance(each, dict)]
