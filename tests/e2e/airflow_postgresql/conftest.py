"""An Airflow on PostgreSQL with two triggerers, whose connection to the cluster can be interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.api_proxy import ApiProxy
from tests.support.postgresql import PostgreSQL
from tests.support.standalone import SHORT_INTERVALS, Standalone, wait_for_airflow

HERE = Path(__file__).resolve().parent
TESTS = HERE.parents[1]
# DAGs of other tests that these tests need, too. Airflow follows the links in its folder of DAGs.
DAG_FILES = [
    *(HERE / "dags").glob("*.py"),
    TESTS / "chaos" / "airflow_kills" / "dags" / "kills.py",
    *(TESTS / "integration" / "airflow" / "dags" / name for name in ("decorated.py", "written.py", "nightly.yaml")),
]


@pytest.fixture(scope="session")
def proxy(laptop):
    with ApiProxy(laptop) as started:
        yield started


@pytest.fixture(scope="session")
def database():
    with PostgreSQL() as started:
        yield started


@pytest.fixture(scope="session")
def dags(tmp_path_factory):
    """Return a folder with the DAGs."""
    folder = tmp_path_factory.mktemp("dags")
    for file in DAG_FILES:
        (folder / file.name).symlink_to(file)
    return folder


@pytest.fixture(scope="session")
def settings(proxy):
    """Return the settings of an Airflow that connects to the cluster through the proxy."""
    connection = proxy.airflow_connection()
    return {**SHORT_INTERVALS, "AIRFLOW_CONN_KUBERNETES_DEFAULT": connection, "AIRFLOW__CORE__PARALLELISM": "12"}


@pytest.fixture(scope="session")
def airflow(database, dags, settings, tmp_path_factory):
    home = tmp_path_factory.mktemp("airflow")
    with Standalone(home, dags, database=database.url, triggerers=2, **settings) as airflow:
        yield airflow


@pytest.fixture
def both(running_tasks):
    """Return the runs of a deferred task and of one on a worker, whose jobs are active."""
    runs = [running_tasks.start(dag) for dag in ("deferred", "on_worker")]
    wait_for_airflow(lambda: all(running_tasks.is_waited_for(run) for run in runs), 120)
    return runs
