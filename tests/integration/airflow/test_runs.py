"""Tests of whole runs with Airflow's own commands against the laptop cluster, with real kills."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
import uuid

import pytest

from tests.support.polling import wait_until
from trainjob.manifest import labels

pytestmark = pytest.mark.usefixtures("airflow")


def list_trainjobs(cluster, dag, task=None):
    """Return the TrainJobs of a DAG, oldest first."""
    jobs = [job for job in cluster.list_trainjobs("default") if job["metadata"]["labels"].get(labels.WORKFLOW) == dag]
    if task:
        jobs = [job for job in jobs if job["metadata"]["labels"].get(labels.TASK) == task]
    return sorted(jobs, key=lambda job: job["metadata"]["creationTimestamp"])


def list_claim_names(cluster):
    response = cluster._http.request("GET", "/api/v1/namespaces/default/persistentvolumeclaims", doing="list claims")
    return [claim["metadata"]["name"] for claim in response["items"]]


def test_the_steps_of_a_chain_share_a_workspace(airflow, cluster):
    mark = uuid.uuid4().hex
    done = airflow("dags", "test", "chain", MARK=mark)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "[node-0] written" in done.stdout
    assert f"[node-0] read {mark}" in done.stdout
    assert len(list_trainjobs(cluster, "chain")) == 2
    assert not [name for name in list_claim_names(cluster) if name.startswith("chain-")]


def test_a_failing_step_logs_the_reason_and_ends_the_chain(airflow, cluster):
    done = airflow("dags", "test", "failing")
    for expected in ("step node", "rank 0", "exit code 3", "RestartLimitExceeded", "ValueError: row 7"):
        assert expected in done.stdout
    assert not list_trainjobs(cluster, "failing", "never")
    assert done.stdout.count("[node-0] about to fail") == 1  # the default retries do not repeat it
    # The workspace of a failed run stays, so that a cleared task can resume.
    assert [name for name in list_claim_names(cluster) if name.startswith("failing-")]


@pytest.mark.slow
@pytest.mark.torchtune
def test_a_decorated_function_runs_on_two_nodes_with_an_earlier_tasks_result(airflow, cluster):
    done = airflow("dags", "test", "decorated")
    assert done.returncode == 0, done.stdout[-4000:]
    for rank in (0, 1):
        assert f"[node-{rank}] hello decorated [1, 2] 3 manual__" in done.stdout
    assert "result of the training: {'total': 3}" in done.stdout
    assert [job["spec"]["trainer"]["numNodes"] for job in list_trainjobs(cluster, "decorated")] == [2]


@pytest.mark.slow
@pytest.mark.parametrize("when", ["Pending", "started"], ids=["about-when-it-defers", "while-deferred"])
def test_a_task_that_runs_again_after_a_kill_adopts_its_trainjob(airflow, cluster, tmp_path, when):
    go, log = tmp_path / "go", tmp_path / "log"
    known = {job["metadata"]["uid"] for job in list_trainjobs(cluster, "slow")}

    def new_jobs():
        return [job for job in list_trainjobs(cluster, "slow") if job["metadata"]["uid"] not in known]

    process = airflow.start("dags", "test", "slow", log=log, GO=str(go))
    [job] = wait_until(new_jobs)
    wait_until(lambda: when == "Pending" or "[node-0] started" in log.read_text())
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    run = json.loads(job["metadata"]["annotations"][labels.RUN_KEY])["run"]
    # After 12 s, the second process waits in most runs; it also adopts a finished TrainJob.
    threading.Timer(12.0, go.touch).start()
    # With another origin the run key differs, and the TrainJob is found by the record in Airflow.
    moved = {} if when == "Pending" else {"AIRFLOW__API__BASE_URL": "http://moved.example"}
    done = airflow("tasks", "test", "slow", "slow", run, GO=str(go), **moved)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "adopted" in done.stdout, done.stdout[-4000:]
    assert "[node-0] finished" in done.stdout
    assert [j["metadata"]["uid"] for j in new_jobs()] == [job["metadata"]["uid"]]


@pytest.mark.slow
def test_an_execution_timeout_on_the_worker_deletes_the_trainjob(airflow, cluster):
    known = {job["metadata"]["uid"] for job in list_trainjobs(cluster, "too_long")}
    done = airflow("dags", "test", "too_long")
    assert "was deleted: its execution_timeout was reached" in done.stdout, done.stdout[-4000:]
    wait_until(lambda: {job["metadata"]["uid"] for job in list_trainjobs(cluster, "too_long")} == known)


def test_the_trigger_fires_at_the_end_and_on_kill_applies_its_action(airflow, cluster):
    from trainjob.lifecycle import Limits
    from trainjob_airflow import TrainJobTrigger

    def trigger(reference, deadline=None, **more):
        return TrainJobTrigger(
            reference=reference.to_dict(),
            limits=Limits().to_dict(),
            deadline=deadline,
            kubernetes_conn_id=None,
            **more,
        )

    async def first_event(waiting):
        async for event in waiting.run():
            return event.payload
        raise AssertionError("no event")

    os.environ["KUBECONFIG"] = cluster._http.connection.kubeconfig
    try:
        good = asyncio.run(first_event(trigger(_submit_script(cluster, "echo fine"))))
        assert good["outcome"]["phase"] == "Complete"
        bad = asyncio.run(first_event(trigger(_submit_script(cluster, "exit 4"))))
        assert bad["outcome"]["exit_code"] == 4
        late = asyncio.run(first_event(trigger(_submit_script(cluster, "sleep 60"), deadline=1.0)))
        assert late["kind"] == "WaitTimeout"
        reference = _submit_script(cluster, "sleep 60")
        asyncio.run(trigger(reference).on_kill())
        wait_until(lambda: cluster.get_trainjob(reference.name, "default") is None)
        for action, suspended in (("keep", False), ("suspend", True)):
            reference = _submit_script(cluster, "sleep 60")
            asyncio.run(trigger(reference, on_kill_action=action).on_kill())
            assert cluster.get_trainjob(reference.name, "default")["spec"].get("suspend", False) is suspended
    finally:
        del os.environ["KUBECONFIG"]


def _submit_script(cluster, script):
    from trainjob import CustomTrainerContainer, RunKey, TrainJob, submit

    job = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sh", "-c", script]))
    return submit(cluster, job, RunKey("test", "triggers", "t", uuid.uuid4().hex))
