"""TrainJobs and tasks after a user's decision in a special moment, and after a part of Airflow or of the cluster fails.

All components are real: those of Airflow are processes that get SIGKILL, and the cluster's API server refuses
connections. One DAG run has a task in each phase, so that one kill tests all of them.
tests/e2e/airflow_postgresql/test_decisions.py has the decisions about tasks that wait.
"""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.support.airflow_tasks import CREATION, PHASES
from tests.support.standalone import wait_for_airflow
from trainjob.manifest import labels

SECONDS = 5.0  # from the moment when a user clears the task or sets its state, until the job is deleted


def list_task_processes(airflow):
    """Return the processes that run a task's own code.

    Their title is `airflow worker -- ID`, and that of their supervisors is `airflow worker -- LocalExecutor: ID`
    (Airflow 3.3.2).
    """
    found = airflow.list_processes("scheduler").items()
    return [pid for pid, title in found if title.startswith("airflow worker -- ") and "LocalExecutor" not in title]


def list_busy_workers(airflow):
    """Return the LocalExecutor's workers that supervise a task and report its state."""
    workers = {pid: title for pid, title in airflow.list_processes("scheduler").items() if "LocalExecutor" in title}
    return [pid for pid, title in workers.items() if "<idle>" not in title]


def list_idle_workers(airflow):
    return [pid for pid, title in airflow.list_processes("scheduler").items() if "<idle>" in title]


# -- a user decides ----------------------------------------------------------------------------------------------------


def test_marking_a_task_during_the_creation_of_its_job_deletes_the_job(running_tasks, airflow, recorder, proxy):
    proxy.withhold_responses(CREATION)
    run = running_tasks.start("creating")
    wait_for_airflow(lambda: recorder.jobs(run), 60)
    airflow.mark_task(run, "creating", "failed")
    decided_at = time.monotonic()
    proxy.release_responses()
    [uid] = recorder.jobs(run)
    wait_for_airflow(lambda: recorder.deleted_at(uid), 30)
    assert recorder.deleted_at(uid) - decided_at <= SECONDS


def test_a_cleared_task_runs_again_even_if_its_new_try_is_killed(running_tasks, airflow, recorder):
    (running_tasks.folder / "task").touch()
    run = running_tasks.start("deferred")
    running_tasks.wait_for_success(run)
    airflow.clear_task(run, "task")
    wait_for_airflow(
        lambda: running_tasks.get_try_number(run, "task") == 2 and airflow.get_state(run, "task") == "running", 60
    )
    for pid in list_task_processes(airflow):
        os.kill(pid, signal.SIGKILL)
    running_tasks.wait_for_success(run)
    assert len(recorder.jobs(run)) == 2


@pytest.mark.parametrize("memory", ["64Mi", "96Mi"])  # the second one is another request, but the same training
def test_a_cleared_task_adopts_finished_work_until_airflow_has_stored_its_success(
    running_tasks, airflow, recorder, dags, memory
):
    (running_tasks.folder / "task.ends").touch()
    run = running_tasks.start("undelivered")
    wait_for_airflow((running_tasks.folder / "task.waits").exists, 120)
    (dags / "kills.py").write_text((dags / "kills.py").read_text().replace('"64Mi"', f'"{memory}"'))
    [process] = list_task_processes(airflow)
    os.kill(process, signal.SIGKILL)
    wait_for_airflow(lambda: airflow.get_state(run, "task") == "failed", 60)
    [job] = recorder.jobs(run).values()
    assert not labels.get_annotation(job, labels.DELIVERED)
    (running_tasks.folder / "task").touch()
    airflow.clear_task(run, "task")
    running_tasks.wait_for_success(run)
    wait_for_airflow(lambda: labels.get_annotation(*recorder.jobs(run).values(), labels.DELIVERED), 10)
    airflow.clear_task(run, "task")
    wait_for_airflow(lambda: len(recorder.jobs(run)) == 2, 60)
    running_tasks.wait_for_success(run)


def test_a_cleared_task_adopts_finished_work_that_a_late_triggerer_has_not_reported(running_tasks, airflow, recorder):
    run = running_tasks.start("deferred")
    wait_for_airflow(lambda: running_tasks.is_deferred(run) and running_tasks.has_pods(run), 120)
    with airflow.suspended_component("triggerer"):
        (running_tasks.folder / "task").touch()
        wait_for_airflow(lambda: running_tasks.is_complete(run, "task"), 60)
        airflow.mark_task(run, "task", "failed")  # as Airflow does if its scheduler is late, too
    airflow.clear_task(run, "task")
    running_tasks.wait_for_success(run)
    running_tasks.assert_one_job_each(run, ["task"])
    assert not any(map(recorder.deleted_at, recorder.jobs(run)))


def test_a_sweep_deletes_the_job_of_a_task_marked_without_a_triggerer(
    running_tasks, airflow, recorder, cluster, evidence
):
    decided, other = running_tasks.start("deferred"), running_tasks.start("deferred")
    wait_for_airflow(
        lambda: all(running_tasks.is_deferred(run) and running_tasks.has_pods(run, "task") for run in (decided, other)),
        120,
    )
    killed = airflow.kill_component("triggerer")
    airflow.mark_task(decided, "task", "failed")
    airflow.start_components("triggerer", killed)
    wait_for_airflow(airflow.is_healthy, 120)
    [uid], [kept] = recorder.jobs(decided), recorder.jobs(other)
    left = sum(job["metadata"]["uid"] == uid for job in cluster.list_trainjobs("default"))
    assert left == 1  # no triggerer was running that could delete it
    sweep = airflow.start_run("sweeping")
    running_tasks.wait_for_success(sweep)
    assert recorder.deleted_at(uid)
    assert recorder.deleted_at(kept) is None
    running_tasks.release_all()
    running_tasks.wait_for_success(other)
    running_tasks.assert_one_job_each(other, ["task"])
    fault = "Airflow: task marked as failed while no triggerer runs"
    evidence("faults", fault=fault, runs=1, result=f"{left} left, then deleted by the sweep")


# -- a component is killed ---------------------------------------------------------------------------------------------


def describe(killed_at):
    return f"success, {time.monotonic() - killed_at:.1f} s after the kill"


@pytest.mark.parametrize(
    ("victims", "name"), [(list_task_processes, "task processes"), (list_busy_workers, "supervisors")]
)
def test_tasks_succeed_when_workers_are_killed_in_every_phase(running_tasks, airflow, record_case, victims, name):
    run, ended = running_tasks.start_in_every_phase()
    for pid in victims(airflow):
        os.kill(pid, signal.SIGKILL)
    killed_at = time.monotonic()
    running_tasks.finish_every_phase(run, ended)
    record_case(f"kill -9 of {name} in each phase", describe(killed_at))


def test_tasks_succeed_when_all_triggerers_are_killed_in_every_phase(running_tasks, airflow, record_case):
    run, ended = running_tasks.start_in_every_phase()
    airflow.start_components("triggerer", airflow.kill_component("triggerer"))
    killed_at = time.monotonic()
    wait_for_airflow(airflow.is_healthy, 120)
    running_tasks.finish_every_phase(run, ended)
    assert {running_tasks.get_try_number(run, task) for task in PHASES} == {1}
    record_case("kill -9 of both triggerers in each phase", f"{describe(killed_at)}; try 1")


def test_tasks_succeed_when_the_scheduler_is_killed_in_every_phase(running_tasks, airflow, record_case):
    run, ended = running_tasks.start_in_every_phase()
    idle = list_idle_workers(airflow)
    for pid in idle:
        os.kill(pid, signal.SIGSTOP)  # so that the next task stays queued
    late = running_tasks.start("late")
    wait_for_airflow(lambda: airflow.get_state(late, "late") == "queued", 60)
    airflow.kill_main_process("scheduler")
    for pid in idle:
        os.kill(pid, signal.SIGKILL)
    killed_at = time.monotonic()
    airflow.start_component("scheduler")
    wait_for_airflow(airflow.is_healthy, 120)
    running_tasks.finish_every_phase(run, ended)
    running_tasks.wait_for_success(late)
    running_tasks.assert_one_job_each(late, ["late"])
    record_case("kill -9 of the scheduler in each phase", describe(killed_at))


def test_tasks_succeed_when_the_api_server_is_unreachable_for_30_seconds(running_tasks, airflow, proxy, record_case):
    runs = [running_tasks.start(dag) for dag in ("deferred", "on_worker")]
    wait_for_airflow(lambda: all(running_tasks.is_waited_for(run) for run in runs), 120)
    proxy.disconnect()
    disconnected_at = time.monotonic()
    running_tasks.release_all()  # the jobs end while nothing can receive their events
    wait_for_airflow(lambda: time.monotonic() - disconnected_at > 30, 40)
    assert {airflow.get_state(run) for run in runs} == {"running"}
    proxy.start_listening()
    reachable_at = time.monotonic()
    running_tasks.wait_for_success(*runs)
    for run in runs:
        assert running_tasks.get_try_number(run, "task") == 1
        running_tasks.assert_one_job_each(run, ["task"])
    seconds = time.monotonic() - reachable_at
    record_case("the cluster's API refuses 30 s", f"success in try 1, {seconds:.1f} s after its end")
