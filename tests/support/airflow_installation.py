"""Kind of Airflow installation on which the tests of complete installations run, and their tasks.

`pytest --postgresql` selects PostgreSQL and two triggerers, as in production; the default is SQLite and one triggerer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.postgresql import PostgreSQL

if TYPE_CHECKING:
    from tests.support.airflow_tasks import RunningTasks, TrainJobRecorder
    from tests.support.api_proxy import ApiProxy
    from tests.support.standalone import Standalone
    from trainjob.client import Cluster


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--postgresql", action="store_true", help="run complete Airflow installations on PostgreSQL, two triggerers"
    )


@pytest.fixture(scope="module")
def installation(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """Yield the arguments of [Standalone][] for a new installation."""
    if not request.config.getoption("--postgresql"):
        yield {}
        return
    with PostgreSQL() as server:
        yield {"database": server.url, "triggerers": 2}


@pytest.fixture
def record_case(request: pytest.FixtureRequest, evidence: Callable[..., None]) -> Callable[..., None]:
    """Return a function that records a row of docs/evidence/airflow.md.

    Its arguments are the case, and the result with the measured seconds. Without `--postgresql`, it only prints them.
    """
    version = metadata.version("apache-airflow-core")

    def record(case: str, result: str) -> None:
        print(f"{case}: {result}")
        if request.config.getoption("--postgresql"):
            evidence("airflow", airflow=version, case=case, result=result)

    return record


@pytest.fixture(scope="session")
def recorder(cluster: Cluster) -> Iterator[TrainJobRecorder]:
    """Yield a record of all TrainJobs of the laptop cluster."""
    from tests.support.airflow_tasks import TrainJobRecorder

    started = TrainJobRecorder(cluster)
    yield started
    started.close()


@pytest.fixture
def running_tasks(
    airflow: Standalone, recorder: TrainJobRecorder, cluster: Cluster, proxy: ApiProxy, tmp_path: Path
) -> Iterator[RunningTasks]:
    """Yield the tasks of one test of an installation, which are released at its end."""
    from tests.support.airflow_tasks import RunningTasks

    made = RunningTasks(airflow, recorder, cluster, proxy, tmp_path)
    yield made
    made.release_all()
