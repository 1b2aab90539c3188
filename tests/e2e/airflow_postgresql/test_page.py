"""Responses of the provider's page in a complete Airflow to requests that it refuses.

Every user of this installation is an administrator. tests/integration/airflow/test_page.py has the requests without a
token, and those of users with fewer rights.
"""

from __future__ import annotations

import http.client

import pytest

from tests.support.standalone import wait_for_airflow

pytestmark = pytest.mark.timeout(400)
PAGE = "/trainjob/api/trainjobs"


def get_status(airflow, method, path, token=""):
    """Return status and headers of a response."""
    connection = http.client.HTTPConnection(airflow.url.removeprefix("http://"), timeout=60)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        response.read()
        return response.status, dict(response.getheaders())
    finally:
        connection.close()


def test_the_page_refuses_wrong_paths_and_methods(airflow, running_tasks, recorder, record_case):
    run = running_tasks.start("deferred")
    wait_for_airflow(lambda: running_tasks.is_waited_for(run), 120)
    [job] = recorder.jobs(run).values()
    token = airflow.request("GET", "/auth/token")["access_token"]

    def is_listed():
        """Return whether the page lists the job; a new API server has no list at first."""
        rows = airflow.request("GET", f"{PAGE}?dag=deferred")["trainjobs"]
        return job["metadata"]["name"] in [row["name"] for row in rows]

    wait_for_airflow(is_listed, 60)
    statuses = {
        "unknown path": get_status(airflow, "GET", "/trainjob/api/nothing", token)[0],
        "unknown TrainJob": get_status(airflow, "GET", f"{PAGE}/kubernetes_default/default/nothing", token)[0],
        "POST": get_status(airflow, "POST", PAGE, token)[0],
    }
    assert statuses == {"unknown path": 404, "unknown TrainJob": 404, "POST": 405}
    record_case("page: refused paths and methods", ", ".join(f"{name}: {status}" for name, status in statuses.items()))
