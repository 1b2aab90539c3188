"""Responses of the provider's page in a complete Airflow to requests that it refuses."""

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


def test_the_page_refuses_requests_as_airflow_does(airflow, running_tasks, recorder, record_case):
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
        "no token": get_status(airflow, "GET", PAGE)[0],
        "wrong token": get_status(airflow, "GET", PAGE, "nonsense")[0],
        "unknown path": get_status(airflow, "GET", "/trainjob/api/nothing", token)[0],
        "POST": get_status(airflow, "POST", PAGE, token)[0],
    }
    assert statuses["no token"] == 401
    assert statuses["wrong token"] in (401, 403)  # Airflow answers 403 to a token that it did not sign
    assert statuses["unknown path"] == 404
    assert statuses["POST"] == 405
    record_case("page: refused requests", ", ".join(f"{name}: {status}" for name, status in statuses.items()))
