"""Tests of the retry budget for interruptions by the infrastructure, with evictions on the laptop cluster."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.integration.airflow.airflow_runs import both_modes, read_xcom, run_dag
from tests.integration.airflow.state_store import StateStore
from tests.support.airflow_versions import HAS_TASK_STATE_STORE
from tests.support.crash_points import BEFORE_CREATE, SUBMITTED, WAITING, arm_trap, reached_by
from tests.support.interruptions import evict, evictions
from tests.support.laptop_memory import RUN_ON_TWO_NODES, get_large_memory
from tests.support.polling import wait_until
from trainjob.errors import CommandFailed, Interrupted, InvalidSpec, JobDeleted
from trainjob.lifecycle import JobReference, RunKey
from trainjob.manifest import labels
from trainjob.status import Category, Outcome, Phase
from trainjob_airflow import TrainJobOperator
from trainjob_airflow.operators.submission import STATE_STORE_KEY
from trainjob_airflow.run_key import get_run_key
from trainjob_airflow.version_compat import AirflowFailException, TaskDeferred

pytestmark = pytest.mark.usefixtures("airflow_environment")

DAG_SELECTOR = f"{labels.WORKFLOW}=interruptions"
STARTUP = Path(__file__).resolve().parents[2] / "chaos" / "crash_points" / "startup"


@pytest.fixture
def no_earlier_trainjobs(cluster):
    """Delete the TrainJobs of earlier tests, which have the same DAG."""
    delete_trainjobs(cluster, DAG_SELECTOR)


def delete_trainjobs(cluster, selector):
    for job in cluster.list_trainjobs("default", selector):
        cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])
    wait_until(lambda: not cluster.list_trainjobs("default", selector))


def count_interruptions(cluster, selector):
    """Return the annotation of each TrainJob, in the order of the attempts."""
    jobs = sorted(
        cluster.list_trainjobs("default", selector), key=lambda job: job["metadata"]["labels"][labels.ATTEMPT]
    )
    return [labels.get_interruptions(job) for job in jobs]


# -- whole runs with dag.test() ---------------------------------------------------------------------------------------


@both_modes()
@pytest.mark.usefixtures("no_earlier_trainjobs")
def test_an_interrupted_task_continues_in_the_same_try(airflow, cluster, tmp_path, deferrable):
    with evictions(cluster, DAG_SELECTOR, 2, then=(tmp_path / "go").touch) as interrupted:
        printed, tasks, state = run_dag(airflow, "interruptions", DEFERRABLE=deferrable, GO=str(tmp_path / "go"))
    assert (tasks, state) == ({"train": ("success", 1)}, "success"), printed[-6000:]
    for text in ("interruption 1 of 3", "interruption 2 of 3", "[node-0] finished"):
        assert printed.count(text) == 1, printed[-6000:]
    assert "interruption 3 of 3" not in printed
    [job] = cluster.list_trainjobs("default", DAG_SELECTOR)
    assert job["metadata"]["uid"] not in interrupted
    assert job["metadata"]["annotations"][labels.INTERRUPTIONS] == "2"
    assert [each["uid"] for each in read_xcom("interruptions", "usage")] == [*interrupted, job["metadata"]["uid"]]


@both_modes()
@pytest.mark.usefixtures("no_earlier_trainjobs")
def test_a_task_that_gets_too_few_nodes_runs_on_fewer(airflow, cluster, deferrable):
    environment = {"DEFERRABLE": deferrable, "MEMORY": str(get_large_memory(cluster)), "SCRIPT": RUN_ON_TWO_NODES}
    printed, tasks, _ = run_dag(airflow, "elastic", **environment)
    assert tasks == {"train": ("success", 1)}, printed[-6000:]
    assert printed.count("no reservation for 4 nodes within 1 s; the next attempt requests 2 nodes") == 1
    assert printed.count("requests 2 of 1 to 4 nodes") == 1
    assert ("[node-0] of 2" in printed, "[node-1] of 2" in printed) == (True, True)
    [job] = cluster.list_trainjobs("default", f"{labels.WORKFLOW}=elastic")
    assert job["spec"]["trainer"]["numNodes"] == 2
    cluster.delete_trainjob(job["metadata"]["name"], "default", job["metadata"]["uid"])


@both_modes()
@pytest.mark.usefixtures("no_earlier_trainjobs")
def test_a_used_up_budget_fails_the_try_and_the_next_try_has_a_new_budget(airflow, cluster, tmp_path, deferrable):
    environment = {"DEFERRABLE": deferrable, "GO": str(tmp_path / "go"), "BUDGET": "1", "RETRIES": "1"}
    with evictions(cluster, DAG_SELECTOR, 3, then=(tmp_path / "go").touch):
        printed, tasks, _ = run_dag(airflow, "interruptions", ON_FAILURE="suspend", **environment)
    assert tasks == {"train": ("success", 2)}, printed[-6000:]
    assert printed.count("starting another attempt, interruption 1 of 1") == 2
    assert "Interrupted" in printed
    assert count_interruptions(cluster, DAG_SELECTOR) == [0, 1, 0, 1]
    of_first_try = 2 if HAS_TASK_STATE_STORE else 0
    assert len({each["uid"] for each in read_xcom("interruptions", "usage")}) == of_first_try + 2


@both_modes()
@pytest.mark.usefixtures("no_earlier_trainjobs")
def test_a_failure_of_the_code_fails_the_try(airflow, cluster, tmp_path, deferrable):
    """After an interruption, too."""
    environment = {"DEFERRABLE": deferrable, "GO": str(tmp_path / "go"), "CODE": "7", "ON_FAILURE": "suspend"}
    with evictions(cluster, DAG_SELECTOR, 1, then=(tmp_path / "go").touch):
        printed, tasks, _ = run_dag(airflow, "interruptions", **environment)
    assert tasks == {"train": ("failed", 1)}, printed[-6000:]
    assert "exit code 7" in printed
    assert count_interruptions(cluster, DAG_SELECTOR) == [0, 1]


# -- single steps of the operator -------------------------------------------------------------------------------------


TRY_START = datetime.now(timezone.utc) - timedelta(minutes=10)


@pytest.fixture
def context(unique):
    ti = SimpleNamespace(
        dag_id="steps",
        task_id="train",
        run_id=unique,
        map_index=-1,
        try_number=1,
        max_tries=0,
        start_date=TRY_START,
        xcoms={},
    )
    ti.xcom_push = ti.xcoms.__setitem__
    due = datetime(2026, 1, 1, tzinfo=timezone.utc)
    started = SimpleNamespace(run_after=due, start_date=due, clear_number=0)
    task = SimpleNamespace(retry_policy=None)
    store = StateStore()
    return {"ti": ti, "task": task, "dag_run": started, "outlet_events": {}, "task_state_store": store}


@pytest.fixture
def selector(context, cluster):
    selector = f"{labels.RUN_KEY}={get_run_key(context).digest}"
    yield selector
    delete_trainjobs(cluster, selector)


def operator(**arguments):
    return TrainJobOperator(task_id="train", trainer={"image": "busybox", "command": ["sleep", "60"]}, **arguments)


def deferral(work, *arguments):
    """Call a method that defers the task, and return the trigger."""
    with pytest.raises(TaskDeferred) as deferred:
        work(*arguments)
    return deferred.value.trigger


def fire(trigger):
    async def first_event():
        async for event in trigger.run():
            return json.loads(json.dumps(event.payload))
        raise AssertionError("no event")

    return asyncio.run(first_event())


def resume(event, context, **arguments):
    return operator(**arguments).resume_execution("execute_complete", {"event": event}, context)


def event_of(reference, category=Category.INFRASTRUCTURE, phase=Phase.FAILED, **more):
    outcome = Outcome(reference["name"], reference["namespace"], reference["uid"], phase, category, "Evicted")
    return {"reference": reference, "outcome": outcome.to_dict(), "receipt": {}, **more}


def test_the_next_deferral_has_the_newest_trainjob_and_the_same_deadline(cluster, context, selector):
    first = deferral(operator(execution_timeout=timedelta(hours=1)).execute, context)
    assert first.deadline == (TRY_START + timedelta(hours=1)).timestamp()
    evict(cluster, selector)
    event = fire(first)
    assert event["deadline"] == first.deadline
    second = deferral(lambda: resume(event, context, execution_timeout=timedelta(hours=1)))
    assert second.deadline == first.deadline
    assert (second.reference["interruptions"], second.reference["uid"]) != (0, first.reference["uid"])
    recorded = context["task_state_store"][STATE_STORE_KEY]
    assert (recorded["uid"], recorded["connection"]) == (second.reference["uid"], "kubernetes_default")
    assert [earlier["uid"] for earlier in recorded["earlier"]] == [first.reference["uid"]]
    assert context["ti"].xcoms["progress"]["phase"] == "Failed"
    asyncio.run(second.on_kill())
    assert not cluster.list_trainjobs("default", selector)


GONE = JobReference("gone", "default", "gone").to_dict()


@pytest.mark.usefixtures("selector")
def test_an_event_of_an_earlier_release_starts_a_new_deadline(context):
    reference = {name: value for name, value in GONE.items() if name != "interruptions"}
    trigger = deferral(lambda: resume(event_of(reference), context, execution_timeout=timedelta(hours=1)))
    assert trigger.deadline == (TRY_START + timedelta(hours=1)).timestamp()
    assert trigger.reference["interruptions"] == 1


@pytest.mark.parametrize(
    ("event", "arguments", "error"),
    [
        (event_of(JobReference("j", "ns", "u", interruptions=3).to_dict()), {}, Interrupted),
        (event_of(JobReference("j", "ns", "u").to_dict()), {"interruption_retries": 0}, Interrupted),
        (event_of(JobReference("j", "ns", "u").to_dict(), Category.APPLICATION), {"retries": 2}, CommandFailed),
        (event_of(JobReference("j", "ns", "u").to_dict(), Category.APPLICATION), {}, AirflowFailException),
        (event_of(JobReference("j", "ns", "u").to_dict(), Category.DELETED, Phase.DELETED), {}, JobDeleted),
    ],
    ids=["budget used up", "no budget", "code", "code, without stated retries", "deleted"],
)
def test_other_ends_fail_the_try(context, event, arguments, error):
    with pytest.raises(error):
        resume(event, context, kubernetes_conn_id=None, **arguments)


@pytest.mark.usefixtures("selector")
def test_the_adopted_attempt_of_a_lost_worker_keeps_its_count(context):
    created = deferral(lambda: resume(event_of(GONE), context)).reference
    adopted = deferral(operator().execute, context).reference  # without an event, because the worker was lost
    assert (adopted["uid"], adopted["adopted"], adopted["interruptions"]) == (created["uid"], True, 1)


@pytest.mark.parametrize("value", [-1, 0.5, "many"])
def test_an_invalid_budget_is_refused_when_the_dag_is_parsed(value):
    with pytest.raises(InvalidSpec, match="interruption_retries"):
        operator(interruption_retries=value)


# -- SIGKILL ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("point", [BEFORE_CREATE, SUBMITTED], ids=lambda point: point.slug)
@pytest.mark.usefixtures("no_earlier_trainjobs")
def test_a_process_that_dies_while_it_starts_another_attempt_leaves_one_trainjob(airflow, cluster, tmp_path, point):
    """The next try creates the attempt that the first one could not create, or adopts the one that it created."""
    trap, log = tmp_path / "trap", tmp_path / "log"
    path = os.pathsep.join([str(STARTUP), str(STARTUP.parents[3]), os.environ.get("PYTHONPATH", "")])
    environment = {"DEFERRABLE": "0", "GO": str(tmp_path / "go"), "BUDGET": "1", "ON_FAILURE": "suspend"}
    arm_trap(trap, WAITING, "pass")
    process = airflow.start(
        "dags", "test", "interruptions", log=log, **environment, CRASH_FOLDER=str(trap), PYTHONPATH=path
    )
    wait_until(lambda: reached_by(trap))
    (trap / "reached").unlink()
    arm_trap(trap, point)
    interrupted = evict(cluster, DAG_SELECTOR)
    wait_until(lambda: reached_by(trap))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    found = cluster.list_trainjobs("default", DAG_SELECTOR)
    created = [job["metadata"]["uid"] for job in found if job["metadata"]["uid"] != interrupted]
    assert len(created) == (point is SUBMITTED)
    run = RunKey.from_text(found[0]["metadata"]["annotations"][labels.RUN_KEY]).run
    (tmp_path / "go").touch()
    done = airflow("tasks", "test", "interruptions", "train", run, **environment)
    assert done.returncode == 0, done.stdout[-4000:]
    assert ("adopted" in done.stdout) == (point is SUBMITTED)
    assert count_interruptions(cluster, DAG_SELECTOR) == [0, int(point is SUBMITTED)]
