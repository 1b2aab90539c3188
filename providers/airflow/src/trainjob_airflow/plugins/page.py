"""Registration of the page and of the listeners as an Airflow plugin.

Every Airflow process loads this module, so it imports as little as possible.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from trainjob_airflow import delivery, trigger_start
from trainjob_airflow.version_compat import AirflowPlugin

_PREFIX = "/trainjob"
_DESTINATIONS = {
    "nav": "",
    "dag": "?dag={DAG_ID}",
    "dag_run": "?dag={DAG_ID}&run={RUN_ID}",
    "task_instance": "?dag={DAG_ID}&run={RUN_ID}&task={TASK_ID}&index={MAP_INDEX}",
}


class TrainJobPage(AirflowPlugin):
    """The page `TrainJobs` in the menu, and as a tab of each DAG, DAG run and task instance."""

    name = "trainjob"
    listeners: list[Any] = [trigger_start, delivery]  # noqa: RUF012 - Airflow's attribute
    # Relative, so that it works below any `[api] base_url`, which is the base of the UI's pages.
    external_views: list[Any] = [  # noqa: RUF012 - Airflow's attribute
        {
            "name": "TrainJobs",
            "href": f"{_PREFIX[1:]}/{query}",
            "destination": destination,
            "url_route": "trainjobs" if destination == "nav" else f"trainjobs-of-{destination.replace('_', '-')}",
            "icon": f"{_PREFIX[1:]}/icon.svg",
            "icon_dark_mode": f"{_PREFIX[1:]}/icon-dark.svg",
        }
        for destination, query in _DESTINATIONS.items()
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The page's app, created on first use, because only the API server reads this attribute."""
        from trainjob_airflow.plugins.api import make_app

        return [{"name": "TrainJobs", "app": make_app(), "url_prefix": _PREFIX}]
