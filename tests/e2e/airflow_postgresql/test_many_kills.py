"""Runs with many deferred tasks that are marked failed or cleared while the cluster's API is slow or away."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.support.standalone import wait_for_airflow
from trainjob.lifecycle import RunKey, reference_to
from trainjob.manifest import labels

pytestmark = pytest.mark.timeout(1500)
HERE = Path(__file__).resolve().parent
FAULTS = {
    "latency 0.1 s": (lambda proxy: proxy.delay_responses(0.1), None),
    "latency 1 s": (lambda proxy: proxy.delay_responses(1.0), None),
    "latency 4 s": (lambda proxy: proxy.delay_responses(4.0), None),
    "429 for 10 s": (lambda proxy: proxy.reject_requests(HTTPStatus.TOO_MANY_REQUESTS), 10.0),
    "away for 30 s": (lambda proxy: proxy.disconnect(), 30.0),
}


@pytest.fixture(params=FAULTS)
def fault(request, proxy):
    """Return the name of a fault, and a function that starts it.

    It ends by itself or with the test.
    """
    start, seconds = FAULTS[request.param]
    timers = []

    def end():
        proxy.delay_responses(0.0)
        proxy.accept_requests()
        if request.param.startswith("away"):
            proxy.start_listening()

    def begin():
        start(proxy)
        timers.append(threading.Timer(seconds or 0.0, end))
        if seconds is not None:
            timers[0].start()

    yield request.param, begin
    for timer in timers:
        timer.join() if timer.is_alive() or timer.finished.is_set() else end()


def count_deferred(airflow, run):
    """Return the number of deferred tasks; 0 until a triggerer has each trigger."""
    count, page, listed = 0, 100, None  # the largest page of Airflow's API
    while listed is None or len(listed) == page:
        path = f"{run}/taskInstances?state=deferred&limit={page}&offset={count}"
        listed = airflow.request("GET", path)["task_instances"]
        if any(each["triggerer_job"] is None for each in listed):
            return 0
        count += len(listed)
    return count


def start_deferred_run(airflow, count):
    run = airflow.start_run("crowd", count=count)
    wait_for_airflow(lambda: count_deferred(airflow, run) == count, 900)
    return run


def wait_until_deleted(recorder, uids, decided_at):
    """Return the seconds from the decision to the deletion of the last TrainJob."""
    try:
        wait_for_airflow(lambda: all(map(recorder.deleted_at, uids)), 180)
    except AssertionError:
        left = [uid for uid in uids if not recorder.deleted_at(uid)]
        raise AssertionError(f"{len(left)} of {len(uids)} TrainJobs are left") from None
    return max(map(recorder.deleted_at, uids)) - decided_at


@pytest.mark.parametrize("decision", ["marked failed", "cleared"])
def test_a_run_with_one_deferred_task(airflow, recorder, record_case, fault, decision):
    name, begin = fault
    run = start_deferred_run(airflow, 1)
    decide(airflow, recorder, record_case, run, 1, decision, name, begin)


def test_a_run_with_60_deferred_tasks_is_marked_failed(airflow, recorder, record_case, fault):
    name, begin = fault
    run = start_deferred_run(airflow, 60)
    decide(airflow, recorder, record_case, run, 60, "marked failed", name, begin)


def decide(airflow, recorder, record_case, run, count, decision, name, begin):
    uids = list(recorder.jobs(run))
    assert len(uids) == count
    begin()
    decided_at = time.monotonic()
    if decision == "cleared":
        airflow.clear_tasks(run, "list_trainers", "task")
    else:
        airflow.request("PATCH", run, {"state": "failed"})
    seconds = wait_until_deleted(recorder, uids, decided_at)
    record_case(f"run of {count} deferred tasks {decision}, {name}", f"0 left, last deleted after {seconds:.1f} s")
    if decision == "cleared":
        airflow.request("PATCH", run, {"state": "failed"})


@pytest.mark.parametrize("count", [200, 500])
def test_many_triggers_in_the_database(airflow, recorder, cluster, record_case, fault, tmp_path, count):
    """The tasks are deferred without workers, for suspended TrainJobs, which have no pods."""
    name, begin = fault
    run = airflow.start_run("waiting_crowd", count=count)
    wait_for_airflow(lambda: count_scheduled(airflow, run) == count, 300)
    run_id = run.rpartition("/")[2]
    jobs = [create_suspended_job(cluster, run_id, number) for number in range(count)]
    (tmp_path / "references.json").write_text(json.dumps([reference_to(job, adopted=False).to_dict() for job in jobs]))
    command = [sys.executable, HERE / "defer_tasks.py", run_id, tmp_path / "references.json"]
    subprocess.run(command, env=airflow.environment, check=True, stdout=subprocess.DEVNULL)
    wait_for_airflow(lambda: count_deferred(airflow, run) == count, 300)
    decide(airflow, recorder, record_case, run, count, "marked failed", name, begin)


def count_scheduled(airflow, run):
    return airflow.request("GET", f"{run}/taskInstances?state=scheduled&limit=1")["total_entries"]


def create_suspended_job(cluster, run_id, number):
    key = RunKey("airflow", "waiting_crowd", "task", run_id, str(number))
    metadata = {
        "name": f"crowd-{key.digest}",
        "namespace": "default",
        "labels": {"app.kubernetes.io/managed-by": "trainjob", labels.RUN_KEY: key.digest},
        "annotations": {labels.RUN_KEY: key.canonical},
    }
    spec = {"suspend": True, "runtimeRef": {"name": "torch-distributed"}, "trainer": {"image": "busybox"}}
    return cluster.create_trainjob(
        {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}
    )
