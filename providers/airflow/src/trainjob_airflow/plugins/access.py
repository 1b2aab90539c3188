"""Permission checks of the page with Airflow's auth manager.

Airflow does not protect the apps of plugins, so the page checks each access itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from fastapi import Depends
from sqlalchemy import select

from trainjob_airflow.plugins.job_sources import JobSource, list_job_sources
from trainjob_airflow.version_compat import get_team_names

CurrentUser = Annotated[Any, Depends(get_user)]
"""User of a request. A request without valid credentials is refused with 401."""
TASKS, LOGS, XCOMS = DagAccessEntity.TASK_INSTANCE, DagAccessEntity.TASK_LOGS, DagAccessEntity.XCOM


def list_usable_sources(user: Any) -> list[JobSource]:
    """Return the job sources of no team, and those of the user's teams."""
    sources, manager = list_job_sources(), get_auth_manager()
    teams = {source.team for source in sources if source.team}
    allowed = {""} | (manager.filter_authorized_teams(teams_names=teams, user=user) if teams else set())
    return [source for source in sources if source.team in allowed]


def filter_rows_of_team(rows: Iterable[dict[str, Any]], team: str) -> list[dict[str, Any]]:
    """Return the rows whose DAG belongs to a team; all rows without a team."""
    rows = list(rows)
    if not team or not rows:
        return rows
    with create_session() as session:
        teams = get_team_names({row["dag"] for row in rows}, session)
    return [row for row in rows if teams.get(row["dag"]) == team]


def filter_readable_dags(user: Any, dag_ids: Iterable[str], entity: DagAccessEntity) -> set[str]:
    """Return those of the DAGs that Airflow knows and whose `entity` the user may read.

    No user may read a DAG that Airflow no longer knows, because the permission cannot be checked.
    """
    wanted = set(dag_ids)
    with create_session() as session:
        known = set(session.scalars(select(DagModel.dag_id).where(DagModel.dag_id.in_(wanted))))
        teams = get_team_names(known, session)
    manager = get_auth_manager()
    return {
        dag_id
        for dag_id in known
        if manager.is_authorized_dag(
            method="GET", access_entity=entity, details=DagDetails(id=dag_id, team_name=teams.get(dag_id)), user=user
        )
    }
