"""Tests of the usage in the XComs of a task, and of the export of it to `trainjob cost`."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest

from tests.integration.airflow.airflow_runs import run_dag
from tests.integration.airflow.state_store import StateStore
from tests.support.code_blocks import RUNNABLE_BLOCKS
from tests.support.polling import wait_until
from trainjob.inspection.cost import group_usages, parse_job_usages
from trainjob.status import Category, Outcome, Phase, Usage
from trainjob_airflow import TrainJobOperator
from trainjob_airflow.plugins.rows import job_row
from trainjob_airflow.run_key import get_run_key, get_task_instance
from trainjob_airflow.task_progress import final_xcom_value
from trainjob_airflow.usage_records import STATE_STORE_KEY, XCOM_KEY, store_usage

pytestmark = pytest.mark.usefixtures("airflow_environment")

GPU = "nvidia.com/gpu"


class UnavailableStore:
    """The store of an Airflow without one, or of an API server that does not respond."""

    def get(self, *_):
        raise OSError("no answer")

    set = get


def make_context(run_id="run", store=None):
    ti = SimpleNamespace(
        dag_id="usage", task_id="train", run_id=run_id, map_index=-1, try_number=1, max_tries=0, xcoms={}
    )
    ti.xcom_push = ti.xcoms.__setitem__
    ti.xcom_pull = lambda *, task_ids, key, map_indexes: ti.xcoms.get(key)
    due = datetime(2026, 1, 1, tzinfo=timezone.utc)
    return {
        "ti": ti,
        "task": SimpleNamespace(retry_policy=None),
        "dag_run": SimpleNamespace(run_after=due, start_date=due, clear_number=0),
        "outlet_events": {},
        "task_state_store": StateStore() if store is None else store,
    }


def outcome(uid, seconds=10.0, phase=Phase.FAILED, **more):
    usage = Usage(seconds, {GPU: 2 * seconds})
    return Outcome(f"train-{uid}", "ml", uid, phase, Category.APPLICATION, usage=usage, labels={"team": "a"}, **more)


def sum_up(context):
    lines = [json.dumps(record) for record in context["ti"].xcoms[XCOM_KEY]]
    [group] = group_usages(parse_job_usages(lines, "XCom"), "team")
    return group.value, group.trainjobs, group.usage.gpu_seconds


def test_the_xcom_has_one_record_for_each_trainjob_of_all_tries():
    context = make_context()
    assert store_usage(context, outcome("1"))
    context["ti"].xcoms.clear()  # as Airflow does at the start of the next try
    assert store_usage(context, outcome("2", 5.0))
    assert not store_usage(context, outcome("2", 7.0, Phase.COMPLETE))  # the worker was killed in between
    assert sum_up(context) == ("a", 2, 34.0)
    assert [record["uid"] for record in context["task_state_store"][STATE_STORE_KEY]] == ["1", "2"]


def test_without_a_state_store_the_xcom_has_the_trainjobs_of_the_try():
    context = make_context(store=UnavailableStore())
    store_usage(context, outcome("1"))
    store_usage(context, outcome("2", 5.0))
    assert sum_up(context) == ("a", 2, 30.0)


def test_a_store_that_fails_once_keeps_its_records():
    context = make_context()
    store_usage(context, outcome("1"))
    store_usage({**context, "task_state_store": UnavailableStore()}, outcome("2"))
    store_usage(context, outcome("3"))
    assert [record["uid"] for record in context["task_state_store"][STATE_STORE_KEY]] == ["1", "3"]


def test_a_store_with_another_value_is_replaced():
    context = make_context(store=StateStore({STATE_STORE_KEY: "nonsense"}))
    store_usage(context, outcome("1"))
    assert sum_up(context) == ("a", 1, 20.0)


def test_the_result_of_a_task_has_the_usage_of_its_pods(cluster, unique):
    context = make_context(unique)
    trainer = {"image": "busybox", "command": ["sleep", "1"], "resources_per_node": {"gpu": 1}}
    result = TrainJobOperator(task_id="train", trainer=trainer, deferrable=False).execute(context)
    usage = result["usage"]
    assert usage["gpu_seconds"] == usage["pod_seconds"] >= 1
    assert usage["complete"]
    [record] = context["ti"].xcoms[XCOM_KEY]
    assert (record["uid"], record["usage"]) == (result["uid"], usage)
    assert context["ti"].xcoms["progress"]["usage"] == usage
    job = cluster.get_trainjob(result["job"], "default")
    assert record["labels"] == job["metadata"]["labels"]
    instance, pods = get_task_instance(get_run_key(context)), cluster.list_pods(result["job"], "default")
    row = job_row(job, instance, connection="c", pods=pods)
    assert row["usage"] == usage


def test_the_progress_of_an_outcome_without_usage_has_none():
    known = Outcome("a", "b", "c", Phase.FAILED, Category.UNKNOWN)
    assert "usage" not in final_xcom_value(known)


@pytest.mark.parametrize(
    ("current", "recorded", "chosen"),
    [
        (None, None, None),
        (Usage(5.0), None, 5.0),
        (None, Usage(5.0), 5.0),
        (Usage(1.0, complete=False), Usage(5.0, complete=False), 5.0),  # pods were deleted since
        (Usage(9.0, complete=False), Usage(5.0), 5.0),
    ],
)
def test_the_page_shows_the_most_complete_usage(current, recorded, chosen):
    from trainjob_airflow.plugins.task_records import TaskXComs
    from trainjob_airflow.plugins.user_rows import _with_progress

    row = {"newest": True, "trainer_status": {}, "usage": current and current.to_dict()}
    progress = {"step": 1, **({"usage": recorded.to_dict()} if recorded else {})}
    shown = _with_progress(row, TaskXComs(progress), True)["usage"]
    assert (shown and shown["pod_seconds"]) == chosen


@pytest.fixture
def served_airflow(airflow):
    """Yield the URL of Airflow's API server with the database of the tests, and a token."""
    import uvicorn
    from airflow.api_fastapi.app import create_app, get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
        patch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as airflow.api_fastapi.main does
        server = uvicorn.Server(uvicorn.Config(create_app("core"), host="127.0.0.1", port=0, log_level="warning"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
        thread.start()
        try:
            wait_until(lambda: server.started)
            port = server.servers[0].sockets[0].getsockname()[1]
            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="admin", role="admin"))
            yield f"http://127.0.0.1:{port}", token
        finally:
            server.should_exit = True
            thread.join(60)


@pytest.mark.slow
def test_the_program_of_the_page_exports_the_xcoms_of_all_dags(airflow, request, tmp_path):
    printed, tasks, state = run_dag(airflow, "chain")
    assert state == "success", printed[-4000:]
    [block] = [each for each in RUNNABLE_BLOCKS if each.title == "export_usage.py"]
    program = tmp_path / block.title
    program.write_text(block.text, "utf-8")
    url, token = request.getfixturevalue("served_airflow")
    environment = {**os.environ, "AIRFLOW_API": url, "AIRFLOW_TOKEN": token}
    done = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    usages = parse_job_usages(done.stdout.splitlines(), "export")
    exported = {each.labels["trainjob.dev/task"] for each in usages if each.labels["trainjob.dev/workflow"] == "chain"}
    assert exported
    assert exported <= set(tasks)
