"""Names of Airflow that the supported versions, 3.1 to 3.3, import from different modules or do not have.

Other modules import these names from here. `apache-airflow-providers-common-compat` offers some of them too, but
`TaskDeferralError` is in none of its versions for Airflow 3.1 and 3.3 (1.14.0, 1.23.0). This module is imported when a
DAG file is parsed, so it imports only what Airflow has loaded by then.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from airflow.sdk import __version__ as _sdk_version
from packaging.version import Version

from trainjob.threads import convert_refusal

try:
    from airflow.sdk import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferralError,
        TaskDeferred,
    )
    from airflow.sdk.plugins_manager import AirflowPlugin
except ImportError:  # Airflow 3.1
    from airflow.configuration import conf  # type: ignore[assignment]
    from airflow.exceptions import (  # type: ignore[attr-defined, no-redef]
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowRescheduleException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferralError,
        TaskDeferred,
    )
    from airflow.plugins_manager import AirflowPlugin  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from airflow.sdk import Context
    from sqlalchemy.orm import Session

__all__ = [
    "CAN_OVERWRITE_RENDERED_FIELDS",
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowPlugin",
    "AirflowRescheduleException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "TaskDeferralError",
    "TaskDeferred",
    "conf",
    "get_retry_policy",
    "get_stats",
    "get_task_state_store",
    "get_task_state_store_model",
    "get_team_names",
    "redact",
    "run_request",
]

CAN_OVERWRITE_RENDERED_FIELDS = Version(_sdk_version) >= Version("1.1.8")
"""Whether an operator may store its template fields at its end.

With Airflow 3.1.2 to 3.1.7, this fails after a try that is retried, and neither callbacks nor listeners are called.
"""

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


async def run_request(
    request: Callable[_Parameters, _Result], *arguments: _Parameters.args, **keywords: _Parameters.kwargs
) -> _Result:
    """Run a function that sends requests to Airflow, on a thread; for triggers.

    In a trigger of Airflow 3.1, a request is a coroutine of the triggerer's event loop, also on a thread. A plain
    `asyncio.to_thread` would run it in another loop, which fails. The coroutine must not be cancelled either: its
    response would be taken for the response to the next request of the triggerer, which then exits (Airflow 3.1.8,
    `TriggerCommsDecoder`). So a cancelled caller ends at once, and the request continues.

    Args:
        request: the function. Code in it may block.
        *arguments: positional arguments of the function.
        **keywords: keyword arguments of the function.

    Raises:
        OutOfThreads: no thread can be started.
        Exception: whatever the function raises.
    """
    from asgiref.sync import sync_to_async

    call = sync_to_async(request, thread_sensitive=False)(*arguments, **keywords)
    with convert_refusal():
        return await asyncio.shield(asyncio.ensure_future(call))


def redact(value: _Result, name: str | None = None) -> _Result:
    """Return texts with `***` in place of the values that Airflow knows as secrets.

    Args:
        value: a text, or a list or dict with texts.
        name: name of the value. If Airflow considers it as sensitive, the whole value is replaced.

    `airflow.sdk.log` has Airflow's function only since Airflow 3.1.6.
    """
    from airflow.sdk._shared.secrets_masker import redact as airflow_redact

    return cast("_Result", airflow_redact(value, name))


def get_task_state_store(context: Context) -> Any:
    """Return the task's state store; None with Airflow 3.1 and 3.2, which have none."""
    return context.get("task_state_store")


def get_task_state_store_model() -> Any:
    """Return the database model of the tasks' state stores.

    It is None with Airflow 3.1 and 3.2, which have none. Only Airflow's API server may import it.
    """
    try:
        from airflow.models.task_state_store import TaskStateStoreModel
    except ImportError:
        return None
    return TaskStateStoreModel


def get_retry_policy(context: Context) -> Any:
    """Return the task's retry policy; None if it has none, as always with Airflow 3.1 and 3.2."""
    return getattr(context["task"], "retry_policy", None)


def get_stats() -> Any:
    """Return Airflow's stats, which send metrics as the settings `[metrics]` say.

    Airflow 3.2 and 3.3 have one object for the SDK and another one for their own processes. In a triggerer of Airflow
    3.2, the import of `airflow.sdk.serde` configures that of the SDK.
    """
    try:
        import airflow.sdk.serde  # noqa: F401
        from airflow.sdk.observability.stats import Stats
    except ImportError:  # Airflow 3.1
        from airflow.stats import Stats
    return Stats


def get_team_names(dag_ids: Collection[str], session: Session) -> dict[str, str | None]:
    """Return the names of the DAGs' teams by DAG ID.

    Airflow 3.1 has no query for several DAGs, so each DAG has one.
    """
    from airflow.models.dag import DagModel

    if hasattr(DagModel, "get_dag_id_to_team_name_mapping"):
        return DagModel.get_dag_id_to_team_name_mapping(list(dag_ids), session=session)
    return {dag_id: DagModel.get_team_name(dag_id, session=session) for dag_id in dag_ids}
