"""TrainJobs in DAGs as authors write them: each kind of DAG succeeds, or ends as its author expects.

All DAG runs start together and run concurrently. Each test waits for its own.
"""

from __future__ import annotations

import json
import time
from datetime import datetime, timezone

import pytest

from tests.support.standalone import wait_for_airflow

pytestmark = pytest.mark.timeout(900)
ENDED = ("success", "failed")
DAGS = ("expanded", "grouped", "retried", "timed_out", "run_timed_out", "trigger_rules")


@pytest.fixture(scope="module")
def runs(airflow, recorder, tmp_path_factory):
    """Start one run of each DAG, and return the paths by DAG."""
    return {dag: airflow.start_run(dag, go=str(tmp_path_factory.mktemp(dag))) for dag in DAGS}


def wait_for_end(airflow, run, seconds=420):
    """Wait until a run has ended, and return its state and duration in seconds."""
    wait_for_airflow(lambda: airflow.get_state(run) in ENDED, seconds)
    found = airflow.request("GET", run)
    return found["state"], seconds_between(found["start_date"], found["end_date"])


def seconds_between(start, end):
    return (parse(end) - parse(start)).total_seconds()


def parse(moment):
    return datetime.fromisoformat(moment.replace("Z", "+00:00"))


def list_tasks(airflow, run):
    return airflow.request("GET", f"{run}/taskInstances?limit=100")["task_instances"]


def get_states(airflow, run):
    return {found["task_id"]: found["state"] for found in list_tasks(airflow, run)}


@pytest.mark.parametrize(
    ("dag", "case", "tasks"),
    [
        ("expanded", "`.expand` of 6", 6),
        ("grouped", "task groups", 3),
    ],
)
def test_a_run_succeeds_with_one_job_for_each_task(airflow, runs, recorder, record_case, dag, case, tasks):
    state, seconds = wait_for_end(airflow, runs[dag])
    assert state == "success"
    assert len(recorder.jobs(runs[dag])) == len(list_tasks(airflow, runs[dag])) == tasks
    record_case(case, f"{tasks} tasks, 1 TrainJob each; {seconds:.1f} s")


def test_the_scheduler_starts_and_finishes_a_chain(airflow, recorder, record_case):
    [found] = wait_for_airflow(
        lambda: (airflow.request("GET", "/api/v2/dags/chain/dagRuns") or {}).get("dag_runs"), 120
    )
    assert found["run_type"] == "scheduled"
    run = f"/api/v2/dags/chain/dagRuns/{found['dag_run_id']}"
    state, seconds = wait_for_end(airflow, run)
    assert state == "success"
    started = [recorder.jobs(run, task) for task in ("a", "b", "c")]
    assert [len(jobs) for jobs in started] == [1, 1, 1]
    times = [job["metadata"]["creationTimestamp"] for jobs in started for job in jobs.values()]
    assert times == sorted(times)
    record_case("chain by the scheduler", f"3 tasks in order, 1 TrainJob each; {seconds:.1f} s")


def test_a_decorated_function_runs_on_two_nodes(airflow, recorder, record_case, torchrun_lock):
    run = airflow.start_run("decorated")
    state, seconds = wait_for_end(airflow, run)
    assert state == "success"
    found = airflow.request("GET", f"{run}/taskInstances/add_up/xcomEntries/return_value?deserialize=true")
    assert found["value"]["result"] == {"total": 3}
    record_case("decorator on two nodes", f"result of both ranks in the XCom; {seconds:.1f} s")


def test_a_manifest_file_is_rendered_with_the_params_of_the_run(airflow, recorder, record_case):
    run = airflow.start_run("written", nodes=3)
    state, seconds = wait_for_end(airflow, run)
    assert state == "success"
    [job] = recorder.jobs(run).values()
    assert job["spec"]["trainer"]["numNodes"] == 3
    assert job["metadata"]["labels"]["team"] == "tickets"
    record_case("manifest file with params", f"3 nodes as given for the run; {seconds:.1f} s")


def test_a_retry_creates_another_job(airflow, runs, recorder, record_case):
    state, seconds = wait_for_end(airflow, runs["retried"])
    [task] = list_tasks(airflow, runs["retried"])
    assert (state, task["try_number"], len(recorder.jobs(runs["retried"]))) == ("success", 2, 2)
    record_case("retries", f"success in try 2, 2 TrainJobs; {seconds:.1f} s")


def test_fast_restarts_in_place_are_reported(airflow, recorder, record_case, tmp_path):
    """The first failures may be seen by the wait or not: each result is reported, and no failure is silent."""
    run = airflow.start_run("restarted", go=str(tmp_path))
    state, seconds = wait_for_end(airflow, run)
    assert len(recorder.jobs(run)) == 1
    warning = "succeeded after 2 restarts in place"
    assert state == "failed" or warning in read_logs(airflow, run, "task")
    how = "failed at the first restart" if state == "failed" else "success with a warning about 2 restarts"
    record_case("two fast restarts in place, `max_restarts=0`", f"{how}; {seconds:.1f} s")


def read_logs(airflow, run, task):
    folder = airflow.log.parent / "logs" / f"dag_id={run.split('/')[4]}" / f"run_id={run.rpartition('/')[2]}"
    return "\n".join(path.read_text() for path in folder.glob(f"task_id={task}/attempt=*.log*"))


@pytest.mark.parametrize("task", ["deferred", "on_worker"])
def test_execution_timeout_counts_from_the_start_of_the_task(airflow, runs, recorder, record_case, task):
    run = runs["timed_out"]
    wait_for_airflow(lambda: airflow.get_state(run, task) == "failed", 240)
    found = airflow.request("GET", f"{run}/taskInstances/{task}")
    [uid] = recorder.jobs(run, task)
    wait_for_airflow(lambda: recorder.deleted_at(uid), 30)
    seconds = seconds_between(found["start_date"], found["end_date"])
    assert 25 <= seconds <= 60
    record_case(f"`execution_timeout` of 30 s, {task.replace('_', ' ')}", f"failed and deleted after {seconds:.1f} s")


def test_a_job_that_cannot_start_fails_its_task(airflow, runs):
    wait_for_airflow(lambda: airflow.get_state(runs["timed_out"], "unstarted") == "failed", 240)


def test_dagrun_timeout_deletes_the_jobs(airflow, runs, recorder, record_case):
    run = runs["run_timed_out"]
    wait_for_airflow(lambda: airflow.get_state(run) == "failed", 240)
    since = datetime.now(timezone.utc) - parse(airflow.request("GET", run)["end_date"])
    failed_at = time.monotonic() - since.total_seconds()
    jobs = wait_for_airflow(lambda: recorder.jobs(run), 60)
    wait_for_airflow(lambda: all(map(recorder.deleted_at, jobs)), 60)
    seconds = max(recorder.deleted_at(uid) for uid in jobs) - failed_at
    assert seconds <= 15
    record_case("`dagrun_timeout`", f"{len(jobs)} TrainJobs deleted {seconds:.1f} s after the run's end")


def test_trigger_rules(airflow, runs, recorder, record_case):
    run = runs["trigger_rules"]
    _, seconds = wait_for_end(airflow, run)
    expected = {"broken": "failed", "after_success": "upstream_failed", "after_failure": "success", "always": "success"}
    assert get_states(airflow, run) == expected
    assert not recorder.jobs(run, "after_success")
    record_case("trigger rules", f"`all_success`, `all_failed` and `all_done` as expected; {seconds:.1f} s")


def test_a_backfill_runs_each_day_once(airflow, recorder, record_case):
    began = time.monotonic()
    wait_for_airflow(lambda: airflow.request("GET", "/api/v2/dags/daily"), 90)
    period = {"from_date": "2026-01-01T00:00:00Z", "to_date": "2026-01-03T00:00:00Z"}
    body = {"dag_id": "daily", **period, "reprocess_behavior": "none", "max_active_runs": 3, "run_backwards": False}
    airflow.request("POST", "/api/v2/backfills", body)
    path = "/api/v2/dags/daily/dagRuns"

    def list_runs():
        return [found for found in airflow.request("GET", path)["dag_runs"] if found["run_type"] == "backfill"]

    wait_for_airflow(lambda: [found["state"] for found in list_runs()] == ["success"] * 3, 240)
    jobs = [recorder.jobs(f"{path}/{found['dag_run_id']}") for found in list_runs()]
    assert [len(each) for each in jobs] == [1, 1, 1]
    record_case("backfill of 3 days", f"3 runs, 1 TrainJob each; {time.monotonic() - began:.1f} s")


def test_a_paused_dag_finishes_its_task_after_it_is_unpaused(airflow, running_tasks, recorder, record_case):
    run = running_tasks.start("deferred")
    wait_for_airflow(lambda: running_tasks.is_waited_for(run), 120)
    airflow.request("PATCH", "/api/v2/dags/deferred", {"is_paused": True})
    running_tasks.release_all()
    wait_for_airflow(lambda: running_tasks.is_complete(run, "task"), 60)
    airflow.request("PATCH", "/api/v2/dags/deferred", {"is_paused": False})
    began = time.monotonic()
    running_tasks.wait_for_success(run)
    assert running_tasks.get_try_number(run) == 1
    running_tasks.assert_one_job_each(run, ["task"])
    record_case(
        "pause while deferred", f"success in try 1, {time.monotonic() - began:.1f} s after the end of the pause"
    )


def test_a_missing_connection_is_retried(airflow, recorder, proxy, record_case):
    run = airflow.start_run("missing_connection")
    wait_for_airflow(lambda: airflow.get_state(run, "task") == "up_for_retry" or airflow.get_state(run) in ENDED, 120)
    assert airflow.get_state(run) == "running"
    found = json.loads(proxy.airflow_connection())
    body = {"connection_id": "later", "conn_type": "kubernetes", "extra": json.dumps(found["extra"])}
    airflow.request("POST", "/api/v2/connections", body)
    state, seconds = wait_for_end(airflow, run)
    assert state == "success"
    assert len(recorder.jobs(run)) == 1
    record_case("connection missing for a moment", f"success in a later try, 1 TrainJob; {seconds:.1f} s")


def test_lines_with_every_byte_appear_while_the_job_runs(airflow, running_tasks, record_case):
    run = running_tasks.start("odd_bytes")
    wait_for_airflow(lambda: "[node-0] all" in read_logs(airflow, run, "task"), 120)
    assert airflow.get_state(run, "task") in ("running", "deferred")  # the lines are live
    # Each line of the file is JSON. Only a newline ends it; `splitlines` would also split at other bytes.
    text = [json.loads(line)["event"] for line in read_logs(airflow, run, "task").split("\n") if line.endswith("}")]
    numbers = {int(line.split()[1]) for line in text if line.startswith("[node-0] ") and line.endswith(" end")}
    missing = set(range(256)) - {10, 13} - numbers
    assert not missing
    running_tasks.release_all()
    state, _ = wait_for_end(airflow, run)
    assert state == "success"
    record_case("live lines with every byte", "254 of 254 lines, each before the end of the TrainJob")
