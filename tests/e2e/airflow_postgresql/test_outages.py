"""Tasks of an Airflow on PostgreSQL with two triggerers while a part of Airflow or of the cluster fails.

tests/chaos/airflow_kills has the kills in every phase of a task.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from datetime import datetime
from http import HTTPStatus
from pathlib import Path

import pytest

from tests.support.airflow_versions import AIRFLOW_VERSION
from tests.support.standalone import wait_for_airflow

pytestmark = pytest.mark.timeout(900)


def wait_seconds(seconds):
    """Wait while an outage lasts; the outage is the event, and it has a duration only."""
    ends_at = time.monotonic() + seconds
    wait_for_airflow(lambda: time.monotonic() >= ends_at, seconds + 5)


def assert_first_tries_succeed(running_tasks, runs, began):
    """Wait until each run has succeeded in its first try with one job.

    Returns:
        Seconds since `began`.
    """
    running_tasks.wait_for_success(*runs)
    for run in runs:
        assert running_tasks.get_try_number(run) == 1
        running_tasks.assert_one_job_each(run, ["task"])
    return time.monotonic() - began


def wait_for_success(running_tasks, runs):
    """Wait until each run has succeeded with one job, and return their tries in words.

    Airflow's supervisor ends a task after three heartbeats without an answer, and the next try adopts the job.
    """
    running_tasks.wait_for_success(*runs, seconds=240)
    for run in runs:
        running_tasks.assert_one_job_each(run, ["task"])
    deferred, on_worker = (running_tasks.get_try_number(run) for run in runs)
    return f"try {deferred} (deferred) and try {on_worker} (on a worker)"


def list_triggerers(airflow, run):
    """Return the triggerer's job ID of each mapped task that is deferred."""
    found = airflow.request("GET", f"{run}/taskInstances?limit=100")["task_instances"]
    return [each["triggerer_job"]["id"] for each in found if each["state"] == "deferred" and each["triggerer_job"]]


def test_another_triggerer_takes_the_triggers_of_a_killed_one(running_tasks, airflow, recorder, record_case):
    run = running_tasks.start("eleven")
    wait_for_airflow(lambda: len(list_triggerers(airflow, run)) == 11, 180)
    before = Counter(list_triggerers(airflow, run))
    killed_at, lost = kill_triggerer(airflow)
    if lost not in before:  # the other one has all triggers
        killed_at, lost = kill_triggerer(airflow)
    wait_for_airflow(lambda: lost not in list_triggerers(airflow, run), 90)
    seconds = time.monotonic() - killed_at
    running_tasks.release_all()
    running_tasks.wait_for_success(run)
    assert len(recorder.jobs(run)) == 11
    tries = {each["try_number"] for each in airflow.request("GET", f"{run}/taskInstances?limit=100")["task_instances"]}
    assert tries == {1}
    record_case("kill -9 of one of two triggerers", f"{before[lost]} of 11 triggers moved after {seconds:.1f} s; try 1")


def kill_triggerer(airflow):
    """Kill the oldest triggerer, and start another one when Airflow has noticed it.

    Returns:
        The time of the kill, and the ID of the triggerer.
    """
    wait_for_airflow(lambda: len(list_live_triggerers(airflow)) == 2, 90)  # without those of earlier tests
    before = list_live_triggerers(airflow)
    airflow.kill_instance("triggerer", 0)
    killed_at = time.monotonic()
    [lost] = wait_for_airflow(lambda: before - list_live_triggerers(airflow), 90)
    airflow.start_component("triggerer")
    return killed_at, lost


def list_live_triggerers(airflow):
    """Return the IDs of the triggerers that send heartbeats."""
    return {job["id"] for job in airflow.request("GET", "/api/v2/jobs?job_type=TriggererJob&is_alive=true")["jobs"]}


def test_a_limit_goes_on_when_both_triggerers_are_killed(running_tasks, airflow, recorder, record_case):
    """Both triggerers are killed 60 s after the creation of a TrainJob that may take 90 s to start."""
    run = running_tasks.start("never_starts")
    wait_for_airflow(lambda: running_tasks.is_deferred(run), 120)
    [job] = recorder.jobs(run).values()
    created_at = datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp()
    wait_for_airflow(lambda: time.time() - created_at > 60, 70)
    for _ in range(2):
        airflow.kill_instance("triggerer", 0)
    for _ in range(2):
        airflow.start_component("triggerer")
    wait_for_airflow(lambda: recorder.deleted_at(job["metadata"]["uid"]), 180)
    seconds = time.time() - created_at
    wait_for_airflow(lambda: airflow.get_state(run, "task") == "failed", 120)
    record_case("`start_timeout` of 90 s, both triggerers killed after 60 s", f"reached after {seconds:.0f} s")
    assert seconds < 150  # 20 s until Airflow notices the kill, and at least 30 s for the new process


def test_a_limit_in_an_outage_does_not_end_what_is_complete(running_tasks, airflow, recorder, proxy, record_case):
    """The trainings end while the API is away, and it answers again after the `execution_timeout` of 75 s."""
    run = running_tasks.start("limited")
    tasks = ("deferred", "on_worker")
    wait_for_airflow(lambda: all(running_tasks.is_waited_for(run, task) for task in tasks), 120)
    proxy.disconnect()
    running_tasks.release_all()
    wait_for_airflow(lambda: all(running_tasks.is_complete(run, task) for task in tasks), 60)
    wait_seconds(80)
    proxy.start_listening()
    running_tasks.wait_for_success(run)
    assert not any(map(recorder.deleted_at, recorder.jobs(run)))
    record_case("`execution_timeout` reached in an outage, after the end of the training", "both tasks succeeded")


def test_tasks_succeed_when_the_api_server_of_airflow_is_killed(running_tasks, airflow, both, record_case):
    airflow.kill_component("api-server")
    began = time.monotonic()
    running_tasks.release_all()
    airflow.start_component("api-server")
    wait_for_airflow(airflow.is_healthy, 120)
    tries = wait_for_success(running_tasks, both)
    record_case(
        "kill -9 of Airflow's API server", f"success in {tries}, {time.monotonic() - began:.1f} s after the kill"
    )


def test_tasks_succeed_when_postgresql_is_away_for_20_seconds(running_tasks, airflow, database, both, record_case):
    database.stop()
    wait_seconds(20)
    database.start()
    began = time.monotonic()
    running_tasks.release_all()  # a scheduler that has lost its database waits for its tasks before it ends

    def is_healthy_again():
        airflow.restart_ended_components()  # as systemd or Kubernetes does
        return airflow.is_healthy()

    wait_for_airflow(is_healthy_again, 150)
    tries = wait_for_success(running_tasks, both)
    record_case("PostgreSQL away 20 s", f"success in {tries}, {time.monotonic() - began:.1f} s later")


def test_tasks_succeed_when_the_cluster_answers_401_for_30_seconds(running_tasks, both, proxy, record_case):
    proxy.reject_requests(HTTPStatus.UNAUTHORIZED)
    running_tasks.release_all()
    wait_seconds(30)
    proxy.accept_requests()
    seconds = assert_first_tries_succeed(running_tasks, both, time.monotonic())
    record_case("401 for 30 s", f"success in try 1, {seconds:.1f} s after its end")


def test_the_next_worker_adopts_the_job_of_a_worker_that_gets_sigterm(running_tasks, airflow, record_case):
    run = running_tasks.start("on_worker")
    wait_for_airflow(lambda: running_tasks.is_waited_for(run), 120)
    task = f"{run}/taskInstances/task"
    pid = airflow.request("GET", task)["pid"]
    began = time.monotonic()
    # Airflow 3.1 does not forward the signal from the supervisor to the task.
    os.kill(find_parent(pid) if AIRFLOW_VERSION >= (3, 3) else pid, signal.SIGTERM)
    wait_for_airflow(lambda: airflow.request("GET", task)["pid"] != pid, 60)
    wait_for_airflow(lambda: airflow.get_state(run, "task") == "running", 60)
    seconds = time.monotonic() - began
    running_tasks.release_all()
    assert_first_tries_succeed(running_tasks, [run], began)
    record_case("SIGTERM to a worker", f"the next worker adopts the TrainJob after {seconds:.1f} s; try 1")


def find_parent(pid):
    """Return the process that supervises a task's process."""
    # After the name in parentheses: state, parent.
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
