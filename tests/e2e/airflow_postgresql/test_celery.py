"""Tasks on a Celery worker that is stopped, with CeleryExecutor, redis, PostgreSQL and two triggerers.

A Celery worker that receives SIGTERM takes no more tasks and ends after its own tasks ("warm shutdown").
"""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.airflow_versions import AIRFLOW_VERSION
from tests.support.postgresql import PostgreSQL
from tests.support.redis_server import RedisServer
from tests.support.standalone import Standalone, wait_for_airflow

pytestmark = pytest.mark.timeout(900)
KILLS = Path(__file__).resolve().parents[2] / "chaos" / "airflow_kills" / "dags" / "kills.py"
WORKER = "celery worker"
READY, WARM_SHUTDOWN = r"celery@\S+ ready\.", r"worker: Warm shutdown \(MainProcess\)"
GRACE_SECONDS = 10  # Kubernetes' terminationGracePeriodSeconds of the worker's pod; the default is 30


@pytest.fixture(scope="module")
def dags(tmp_path_factory):
    """Return a folder without scheduled DAGs.

    Their runs would have the same IDs as in the other Airflow.
    """
    folder = tmp_path_factory.mktemp("dags")
    (folder / KILLS.name).symlink_to(KILLS)
    return folder


@pytest.fixture(scope="module")
def airflow(settings, dags, tmp_path_factory):
    pytest.importorskip("airflow.providers.celery", reason="the package apache-airflow-providers-celery is missing")
    with RedisServer() as redis, PostgreSQL() as database:
        celery = {
            "AIRFLOW__CORE__EXECUTOR": "CeleryExecutor",
            "AIRFLOW__CELERY__BROKER_URL": redis.url,
            "AIRFLOW__CELERY__RESULT_BACKEND": f"db+{database.url}",
            "AIRFLOW__CELERY__WORKER_CONCURRENCY": "4",
        }
        home = tmp_path_factory.mktemp("airflow")
        with Standalone(home, dags, database=database.url, triggerers=2, **settings, **celery) as airflow:
            yield airflow


@pytest.fixture
def workers(airflow):
    yield Workers(airflow)
    airflow.kill_component(WORKER)


class Workers:
    """The Celery workers of one test.

    They share the name of their node: with `--celery-hostname`, a worker of the Celery provider 3.17 runs no task.
    """

    def __init__(self, airflow):
        self._airflow = airflow

    def start(self):
        """Start a worker, wait until it takes tasks, and return the ID of its main process."""
        earlier = self._count_in_log(READY)
        pid = self._airflow.start_component(WORKER)
        wait_for_airflow(lambda: self._count_in_log(READY) > earlier, 120)
        return pid

    def list_processes(self):
        return list(self._airflow.list_processes(WORKER))

    def send_sigterm(self, *pids):
        """Send SIGTERM to processes of a worker, and wait until the worker takes no more tasks."""
        earlier = self._count_in_log(WARM_SHUTDOWN)
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        wait_for_airflow(lambda: self._count_in_log(WARM_SHUTDOWN) > earlier, 30)

    def _count_in_log(self, pattern):
        return len(re.findall(pattern, self._airflow.log.read_text(errors="replace")))


@pytest.fixture
def first_worker(workers):
    """Start a worker, and return its main process.

    A test requests this fixture before `both`, whose tasks need a worker.
    """
    return workers.start()


def wait_for_one_job_each(running_tasks, runs):
    """Wait until both tasks have succeeded with one job each, and return their tries."""
    running_tasks.wait_for_success(*runs, seconds=240)
    for run in runs:
        running_tasks.assert_one_job_each(run, ["task"])
    return [running_tasks.get_try_number(run) for run in runs]


def test_a_task_ends_on_its_worker_during_a_warm_shutdown(workers, first_worker, both, running_tasks, record_case):
    workers.send_sigterm(first_worker)
    workers.start()
    assert first_worker in workers.list_processes()  # it waits for the end of its task
    running_tasks.release_all()
    assert wait_for_one_job_each(running_tasks, both) == [1, 1]
    wait_for_airflow(lambda: first_worker not in workers.list_processes(), 60)
    record_case("SIGTERM to a Celery worker (warm shutdown)", "its task ends on it, a deferred one on another; try 1")


def test_the_next_worker_adopts_the_job_of_a_worker_that_kubernetes_kills(
    workers, first_worker, both, running_tasks, airflow, record_case
):
    """Kubernetes sends SIGTERM to a container's main process, and SIGKILL to all processes after the grace period."""
    _, on_worker = both
    workers.send_sigterm(first_worker)
    workers.start()
    killed_at = time.monotonic() + GRACE_SECONDS
    wait_for_airflow(lambda: time.monotonic() >= killed_at, GRACE_SECONDS + 5)
    assert airflow.get_state(on_worker, "task") == "running"
    airflow.kill_instance(WORKER, 0)
    wait_for_airflow(lambda: running_tasks.get_try_number(on_worker) == 2, 90)
    wait_for_airflow(lambda: airflow.get_state(on_worker, "task") == "running", 60)
    seconds = time.monotonic() - killed_at
    running_tasks.release_all()
    assert wait_for_one_job_each(running_tasks, both) == [1, 2]
    record_case(
        f"SIGTERM to a Celery worker, SIGKILL after {GRACE_SECONDS} s",
        f"the next worker adopts the TrainJob {seconds:.1f} s after the SIGKILL, in try 2; the deferred task: try 1",
    )


def test_the_next_worker_adopts_the_job_of_a_worker_whose_processes_all_get_sigterm(
    workers, first_worker, both, running_tasks, airflow, record_case
):
    """Systemd sends SIGTERM to all processes of a service.

    Airflow 3.1 does not forward it from the supervisor to the task, so that the task needs another try.
    """
    _, on_worker = both
    task = f"{on_worker}/taskInstances/task"
    pid = airflow.request("GET", task)["pid"]
    began = time.monotonic()
    workers.send_sigterm(*workers.list_processes())
    workers.start()
    wait_for_airflow(lambda: airflow.request("GET", task)["pid"] not in (pid, None), 90)
    wait_for_airflow(lambda: airflow.get_state(on_worker, "task") == "running", 60)
    seconds = time.monotonic() - began
    running_tasks.release_all()
    tries = wait_for_one_job_each(running_tasks, both)
    assert tries == [1, 1 if AIRFLOW_VERSION >= (3, 3) else 2]
    record_case(
        "SIGTERM to all processes of a Celery worker",
        f"the next worker adopts the TrainJob after {seconds:.1f} s; try {tries[1]}",
    )
