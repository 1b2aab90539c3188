"""Fixtures of an Airflow home for these tests, with the laptop cluster as its default connection.

The environment is set before Airflow is imported. With `--postgresql`, the database is PostgreSQL instead of SQLite;
test_page.py supports this.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.postgresql import PostgreSQL, find_programs

DAGS = Path(__file__).resolve().parent / "dags"
_HOME = tempfile.mkdtemp(prefix="airflow-tests-")
os.environ.update(
    {
        "AIRFLOW_HOME": _HOME,
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "0",  # no timeout: the first file's import includes all modules
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__UNIT_TEST_MODE": "False",
        "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE": "True",  # the airflow.cfg that Airflow creates has false
    }
)


def pytest_configure(config):
    """Start PostgreSQL with `--postgresql` if it is installed."""
    if config.getoption("--postgresql") and find_programs():
        server = PostgreSQL().__enter__()
        config.add_cleanup(server.__exit__)
        os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = server.url


def pytest_sessionfinish():
    import shutil

    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_environment(laptop):
    """Return the environment of an Airflow process.

    Its default Kubernetes connection is the laptop cluster.
    """
    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    os.environ["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = connection
    return {**os.environ}


class AirflowCommand:
    """Runner of the `airflow` command on the tests' own database."""

    def __init__(self, environment):
        self._environment = environment
        self._program = str(Path(sys.executable).parent / "airflow")
        done = self("db", "migrate")
        assert done.returncode == 0, done.stderr

    def __call__(self, *arguments, **environment):
        """Run a command to its end, with its output and error stream together in `stdout`."""
        return subprocess.run(
            [self._program, *arguments],
            env={**self._environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start(self, *arguments, log, **environment):
        """Start a command in a process group of its own, with its output in a file."""
        with log.open("w") as out:
            return subprocess.Popen(
                [self._program, *arguments],
                env={**self._environment, **environment},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )


@pytest.fixture(scope="session")
def airflow(airflow_environment):
    return AirflowCommand(airflow_environment)
