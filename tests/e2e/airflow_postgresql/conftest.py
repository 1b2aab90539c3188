"""An Airflow on PostgreSQL with two triggerers, whose connection to the cluster can be interrupted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.airflow_tasks import RunningTasks, TrainJobRecorder
from tests.support.api_proxy import ApiProxy
from tests.support.postgresql import PostgreSQL
from tests.support.standalone import SHORT_INTERVALS, Standalone

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
def airflow(proxy, database, tmp_path_factory):
    """Return an Airflow that connects to the cluster through the proxy."""
    home, dags = tmp_path_factory.mktemp("airflow"), tmp_path_factory.mktemp("dags")
    for file in DAG_FILES:
        (dags / file.name).symlink_to(file)
    settings = {**SHORT_INTERVALS, "AIRFLOW_CONN_KUBERNETES_DEFAULT": proxy.airflow_connection()}
    settings["AIRFLOW__CORE__PARALLELISM"] = "12"
    with Standalone(home, dags, database=database.url, triggerers=2, **settings) as airflow:
        yield airflow


@pytest.fixture(scope="session")
def recorder(cluster):
    started = TrainJobRecorder(cluster)
    yield started
    started.close()


@pytest.fixture
def running_tasks(airflow, recorder, cluster, proxy, tmp_path):
    made = RunningTasks(airflow, recorder, cluster, proxy, tmp_path)
    yield made
    made.release_all()
