"""An Airflow whose components can be killed, and an API server that can be disconnected."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.api_proxy import ApiProxy
from tests.support.standalone import SHORT_INTERVALS, Standalone

DAGS = Path(__file__).resolve().parent / "dags"


@pytest.fixture(scope="module")
def proxy(laptop):
    with ApiProxy(laptop) as started:
        yield started


@pytest.fixture(scope="module")
def dags(tmp_path_factory):
    """Return a copy of the DAGs, which a test may edit."""
    return Path(shutil.copytree(DAGS, tmp_path_factory.mktemp("airflow") / "dags"))


@pytest.fixture(scope="module")
def airflow(proxy, installation, dags, tmp_path_factory):
    """Return an Airflow that connects to the cluster through the proxy.

    The jobs' processes do not use the proxy.
    """
    home = tmp_path_factory.mktemp("airflow")
    connection = proxy.airflow_connection()
    with Standalone(
        home, dags, **installation, AIRFLOW_CONN_KUBERNETES_DEFAULT=connection, **SHORT_INTERVALS
    ) as airflow:
        yield airflow
