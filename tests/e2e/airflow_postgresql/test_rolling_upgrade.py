"""Tasks of an Airflow whose parts are replaced one after the other by a newer version of this project.

The newer version is a copy of the sources with one more field in each serialized class and one more argument of each
trigger.
"""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.standalone import wait_for_airflow
from trainjob.manifest import labels

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).resolve().parents[3]
SOURCES = {"trainjob": "core/src/trainjob", "trainjob_airflow": "providers/airflow/src/trainjob_airflow"}
ANNOTATION = "trainjob.dev/of-next-version"  # shows which version has created a TrainJob
# File, a text that it has once, and the text of the newer version.
CHANGES = [
    (
        "trainjob/lifecycle/prepared_job.py",
        "                labels.SPEC_HASH: self.spec_hash,\n",
        f'                labels.SPEC_HASH: self.spec_hash,\n                "{ANNOTATION}": "yes",\n',
    ),
    (
        "trainjob/lifecycle/identity.py",
        "    cluster: ClusterIdentity | None = None\n",
        '    cluster: ClusterIdentity | None = None\n    of_next_version: str = "reference"\n',
    ),
    (
        "trainjob/lifecycle/wait_policy.py",
        'return {**seconds, "max_restarts"',
        'return {**seconds, "of_next_version": ["limits"], "max_restarts"',
    ),
    (
        "trainjob_airflow/triggers/trainjob.py",
        '        deferral_id: str = "",\n',
        '        deferral_id: str = "",\n        of_next_version: str = "trigger",\n',
    ),
    (
        "trainjob_airflow/triggers/trainjob.py",
        "        self._cached_cluster: Cluster | None = None\n",
        "        self._cached_cluster: Cluster | None = None\n        self.of_next_version = of_next_version\n",
    ),
    (
        "trainjob_airflow/triggers/trainjob.py",
        '            "deferral_id",\n',
        '            "deferral_id",\n            "of_next_version",\n',
    ),
]
WORKERS = ("dag-processor", "scheduler")  # the scheduler starts the workers
TASKS = ("task", "other", "sensor")


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """Return a folder with the newer version of the packages."""
    folder = tmp_path_factory.mktemp("newer")
    for package, path in SOURCES.items():
        shutil.copytree(ROOT / path, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text, replacement in CHANGES:
        source = (folder / name).read_text()
        assert source.count(text) == 1, (name, text)
        (folder / name).write_text(source.replace(text, replacement))
    return folder


@contextmanager
def version(airflow, folder):
    """Start components with the packages of a folder; None means this repository's."""
    before = airflow.environment.pop("PYTHONPATH", None)
    airflow.environment |= {} if folder is None else {"PYTHONPATH": str(folder)}
    try:
        yield
    finally:
        airflow.environment.pop("PYTHONPATH", None)
        airflow.environment |= {} if before is None else {"PYTHONPATH": before}


def replace_workers(airflow, folder):
    with version(airflow, folder):
        for name in WORKERS:
            airflow.stop_component(name)
            airflow.start_component(name)
    wait_for_airflow(airflow.is_healthy, 120)


def replace_triggerers(airflow, folder):
    """Replace one triggerer after the other, so that both versions run side by side."""
    for _ in range(2):
        airflow.kill_instance("triggerer", 0)
        with version(airflow, folder):
            airflow.start_component("triggerer")
        wait_for_airflow(lambda: len(list_live_triggerers(airflow)) == 2, 120)


def list_live_triggerers(airflow):
    return {job["id"] for job in airflow.request("GET", "/api/v2/jobs?job_type=TriggererJob&is_alive=true")["jobs"]}


def are_deferred(running_tasks, run):
    return all(running_tasks.is_deferred(run, task) for task in TASKS)


def are_followed(running_tasks, recorder, run):
    """Return whether all tasks are deferred and their triggers have read their arguments."""
    jobs = recorder.jobs(run).values()
    announced = [labels.get_annotation(job, labels.DEFERRAL) for job in jobs]
    return are_deferred(running_tasks, run) and len(announced) == 2 and all(announced)


@pytest.mark.parametrize("first", ["workers", "triggerers"])
def test_tasks_of_one_try_succeed_while_airflow_is_upgraded(
    running_tasks, airflow, recorder, newer, record_case, first
):
    """Each triggerer is replaced during the waits, and the workers before them or after them."""
    try:
        if first == "workers":
            replace_workers(airflow, newer)
        run = running_tasks.start("upgraded")
        wait_for_airflow(lambda: are_followed(running_tasks, recorder, run), 180)
        [job] = recorder.jobs(run, "task").values()
        assert (ANNOTATION in job["metadata"]["annotations"]) == (first == "workers")
        replace_triggerers(airflow, newer)
        wait_for_airflow(lambda: are_deferred(running_tasks, run), 180)
        if first == "triggerers":
            again = running_tasks.start("upgraded")  # by the older workers
            wait_for_airflow(lambda: are_followed(running_tasks, recorder, again), 180)
        runs = [run] if first == "workers" else [run, again]
        running_tasks.release_all()
        running_tasks.wait_for_success(*runs, seconds=240)
        for each in runs:
            assert {running_tasks.get_try_number(each, task) for task in TASKS} == {1}
            running_tasks.assert_one_job_each(each, TASKS[:2])
            assert not any(map(recorder.deleted_at, recorder.jobs(each)))
        record_case(
            f"Rolling upgrade, {first} first, both triggerers replaced during the waits, `retries=0`",
            f"{len(runs) * len(TASKS)} tasks succeeded in try 1, each with one TrainJob",
        )
    finally:
        running_tasks.release_all()
        replace_triggerers(airflow, None)
        if first == "workers":
            replace_workers(airflow, None)
