"""Usage of all TrainJobs of a task instance, stored in Airflow.

The records are the lines of an export that `trainjob cost --from` reads. Airflow deletes the XComs of a task at the
start of each try (Airflow 3.3). The task state store keeps the records over tries and clears, and the XCom gets all of
them at the end of each TrainJob. Airflow 3.1 and 3.2 have no such store, so there the XCom has the records of one try.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from trainjob_airflow.version_compat import get_task_state_store

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainjob.status import Outcome

XCOM_KEY = "usage"
"""Key of the XCom with the list of records."""
STATE_STORE_KEY = "trainjob_usage"
_FIELDS = ("job", "namespace", "uid", "phase", "labels", "usage")
_LOGGER = logging.getLogger(__name__)


def store_usage(context: Context, outcome: Outcome, *, do_xcom_push: bool = True) -> bool:
    """Add the usage of an ended TrainJob to the records of its task instance.

    Each TrainJob has one record. If the task state store cannot be read, it is not changed, and the XCom has the
    TrainJobs of this try only.

    Args:
        context: context of the task.
        outcome: outcome of the TrainJob.
        do_xcom_push: whether to write the XCom.

    Returns:
        False if the records have the TrainJob already, because an earlier process of the task has stored it.
    """
    values = outcome.to_dict()
    record = {name: values[name] for name in _FIELDS}
    stored = _read_store(context)
    earlier = _read_xcom(context) if stored is None else stored
    records = _add_record(earlier, record)
    if stored is not None:
        try:
            get_task_state_store(context).set(STATE_STORE_KEY, records)
        except Exception:
            _LOGGER.debug("The task state store could not be written: %s", STATE_STORE_KEY, exc_info=True)
    if do_xcom_push:
        context["ti"].xcom_push(XCOM_KEY, records)
    return all(each.get("uid") != outcome.uid for each in earlier if isinstance(each, dict))


def _add_record(records: list[Any], record: dict[str, Any]) -> list[Any]:
    """Return the records with another one, which replaces that of the same TrainJob."""
    return [*(each for each in records if isinstance(each, dict) and each.get("uid") != record["uid"]), record]


def _read_store(context: Context) -> list[Any] | None:
    """Return the records in the task state store; None if no store can be read."""
    store = get_task_state_store(context)
    if store is None:
        return None
    try:
        stored = store.get(STATE_STORE_KEY)
    except Exception:
        _LOGGER.debug("The task state store could not be read: %s", STATE_STORE_KEY, exc_info=True)
        return None
    return stored if isinstance(stored, list) else []


def _read_xcom(context: Context) -> list[Any]:
    """Return the records of this try; empty if they cannot be read."""
    task_instance = context["ti"]
    task, index = task_instance.task_id, task_instance.map_index
    try:
        found = task_instance.xcom_pull(task_ids=task, key=XCOM_KEY, map_indexes=index)
    except Exception:
        _LOGGER.debug("The XCom could not be read: %s", XCOM_KEY, exc_info=True)
        return []
    return found if isinstance(found, list) else []
