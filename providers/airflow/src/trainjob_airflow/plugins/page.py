"""What Airflow is told about the page. Every Airflow process loads this module, so it imports next to nothing."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.sdk.plugins_manager import AirflowPlugin

_PREFIX = "/trainjob"
_PLACES = {
    "nav": "",
    "dag": "?dag={DAG_ID}",
    "task_instance": "?dag={DAG_ID}&run={RUN_ID}&task={TASK_ID}&index={MAP_INDEX}",
}


class TrainJobPage(AirflowPlugin):
    """The page `TrainJobs` in the menu, and as a tab of each DAG and each task instance."""

    name = "trainjob"
    # Relative, so that it holds below any `[api] base_url`: the UI's pages have that as their base.
    external_views: list[Any] = [  # noqa: RUF012 - Airflow's attribute
        {
            "name": "TrainJobs",
            "href": f"{_PREFIX[1:]}/{query}",
            "destination": destination,
            "url_route": "trainjobs" if destination == "nav" else f"trainjobs-of-{destination.replace('_', '-')}",
            "icon": f"{_PREFIX[1:]}/icon.svg",
            "icon_dark_mode": f"{_PREFIX[1:]}/icon-dark.svg",
        }
        for destination, query in _PLACES.items()
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Made where it is asked for: only the API server does."""
        from trainjob_airflow.plugins.api import make_app

        return [{"name": "TrainJobs", "app": make_app(), "url_prefix": _PREFIX}]
