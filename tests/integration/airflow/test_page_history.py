"""Tests of TrainJobs that no cluster has any more, from what their tasks have recorded.

They run in Airflow's own app, with the fixtures of test_page.py and test_page_list.py.
"""
# ruff: noqa: F811 - the fixtures are imported

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from urllib.parse import urlencode

import pytest

from tests.integration.airflow.airflow_runs import run_dag
from tests.integration.airflow.test_page import (  # noqa: F401 - fixtures
    app,
    environment,
    find_newest_run,
    get_as_admin,
    send_as,
    sweep_query,
    sweep_run,
    without,
)
from tests.integration.airflow.test_page_list import clusters, row, runs  # noqa: F401 - fixtures
from tests.support.polling import wait_until
from trainjob.errors import ClusterUnreachable
from trainjob_airflow.plugins import history, queries, user_rows

pytestmark = pytest.mark.slow


@pytest.fixture
def in_cluster(monkeypatch):
    """Let the page list the cluster of the sweep."""
    monkeypatch.setenv("AIRFLOW__TRAINJOB__PAGE_CONNECTIONS", "laptop")
    queries.list_query.cache_clear()
    yield
    queries.list_query.cache_clear()


def test_ended_trainjobs_include_those_that_were_deleted(get_as_admin, sweep_run, in_cluster):
    path = f"api/trainjobs?{sweep_query(sweep_run, state='ended', sort='task')}"
    found = wait_until(lambda: shown if len((shown := get_as_admin(path))["trainjobs"]) == 3 else None)
    shown = [(each["index"], each["phase"], each.get("deleted", False)) for each in found["trainjobs"]]
    assert shown == [(0, "Complete", False), (1, "Complete", False), (2, "Failed", True)]
    deleted = found["trainjobs"][2]
    assert (deleted["namespace"], deleted["attempt"], deleted["progress"]["loss"]) == ("default", 1, 1.3)
    assert deleted["name"].startswith("tune")
    assert deleted["created"] <= deleted["ended"]
    assert "pod_seconds" in deleted["usage"]

    only_deleted = get_as_admin(f"api/trainjobs?{sweep_query(sweep_run, state='deleted')}")
    assert [each["index"] for each in only_deleted["trainjobs"]] == [2]
    assert get_as_admin(f"api/trainjobs?{sweep_query(sweep_run, state='active')}")["trainjobs"] == []
    assert [each["index"] for each in get_as_admin("api/trainjobs?state=deleted&dag=sweeping")["trainjobs"]][:1] == [2]


def test_a_deleted_trainjob_requires_the_permissions_for_tasks_and_xcoms(get_as_admin, sweep_run, in_cluster, without):
    for scope in (sweep_query(sweep_run, state="deleted"), "state=deleted"):
        for permission in ("XCOM", "TASK_INSTANCE"):
            with without(permission):
                found = get_as_admin(f"api/trainjobs?{scope}")
                assert (found["total"], any(found["counts"].values())) == (0, False)
    assert "config" not in json.dumps(get_as_admin("api/trainjobs?state=deleted")["trainjobs"])


def test_the_history_is_bounded_in_time_and_number(get_as_admin, sweep_run, clusters, monkeypatch):
    since = (datetime.now(timezone.utc) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert get_as_admin(f"api/trainjobs?{sweep_query(sweep_run, state='deleted', since=since)}")["total"] == 0
    until = "2020-01-01T00:00:00"
    assert get_as_admin(f"api/trainjobs?{sweep_query(sweep_run, state='deleted', until=until)}")["total"] == 0
    for module in (history, user_rows):
        monkeypatch.setattr(module, "MAX_ENDED", 2)
    found = get_as_admin(f"api/trainjobs?{sweep_query(sweep_run, state='deleted')}")
    assert found["total"] == 2
    assert found["problems"] == ["Only the newest 2 tasks that ended are listed. Select a DAG or a time."]


def test_a_trainjob_of_a_cluster_that_is_away_is_not_said_to_be_deleted(get_as_admin, sweep_run, clusters):
    path = f"api/trainjobs?{sweep_query(sweep_run, state='deleted')}"
    assert [each["deleted"] for each in get_as_admin(path)["trainjobs"]] == [True] * 3
    clusters["far"] = ClusterUnreachable("refused")
    queries.list_query.cache_clear()
    assert [each["deleted"] for each in get_as_admin(path)["trainjobs"]] == [False] * 3


def test_a_trainjob_that_exists_is_listed_once(get_as_admin, sweep_run, clusters):
    finished = {"phase": "Complete", "finished": True, "ended": row(0)["created"]}
    clusters["near"] = [row(0, dag="sweeping", run=sweep_run, task="tune", **finished)]
    found = get_as_admin(f"api/trainjobs?{sweep_query(sweep_run, state='ended', sort='task')}")["trainjobs"]
    assert [(each["name"][:4], each.get("deleted")) for each in found] == [
        ("near", None) if each["index"] == 0 else ("tune", True) for each in found
    ]
    assert len(found) == 3


def test_the_scores_of_a_tasks_runs_require_the_permission_for_xcoms(get_as_admin, airflow, without, tmp_path):
    for value in (0.5, 0.75):
        report = {"passed": True, "scores": {"t/acc": {"value": value}}, "champion_scores": {"t/acc": {"value": 0.5}}}
        (tmp_path / "passed.log").write_text(f"evaluate: done {json.dumps(report)}\n")
        run_dag(airflow, "gated", FOLDER=str(tmp_path))
    run = find_newest_run("gated")
    query = urlencode({"dag": "gated", "run": run, "task": "passed"})
    [curve] = [each for each in get_as_admin(f"api/task?{query}")["scores"] if each["metric"] == "t/acc"]
    (first, _), (last, _) = curve["points"][-2:]
    assert last == first + 1
    assert [value for _, value in curve["points"][-2:]] == [0.5, 0.75]
    assert [value for _, value in curve["champion_points"][-2:]] == [0.5, 0.5]
    with without("XCOM"):
        assert get_as_admin(f"api/task?{query}")["scores"] == []
    promoted = urlencode({"dag": "gated", "run": run, "task": "passed_promote"})
    assert get_as_admin(f"api/task?{promoted}")["scores"] == []


ODD_RECORDS = ["5", "[5]", "[]", '"s3://b/x"', "[" * 10_000, '{"name": 5, "attempt": []}', '{"trainjob": {"a": 1}}']


@pytest.mark.parametrize("text", ODD_RECORDS, ids=lambda text: text[:20])
@pytest.mark.parametrize("key", [history.USAGE_KEY, history.FAILURE_KEY, history.STATE_STORE_KEY])
def test_any_record_of_a_task_can_be_read(key, text):
    assert set(history._parse_job(key, text)) <= {"name", "namespace", "uid", "attempt", "connection"}
