"""Tests of the list of TrainJobs in Airflow's own app: filters, order, runs and clusters that are away.

The rows of the clusters are made up; the other tests of the page use a cluster.
"""
# ruff: noqa: F811 - the fixtures are imported

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from tests.integration.airflow.test_page import (  # noqa: F401 - fixtures
    app,
    environment,
    get_as_admin,
    send_as,
    without,
)
from trainjob.errors import ClusterUnreachable, PermissionDenied
from trainjob_airflow.plugins import queries, shared_query
from trainjob_airflow.plugins.job_list import format_time
from trainjob_airflow.plugins.queries import JobDetails, JobRows

pytestmark = pytest.mark.slow
DAG = "dag_of_the_list"
RUN_DATE = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def runs(app):
    """Create a DAG with owners, a run with a logical date, and a run of a user without one."""
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    with create_session() as session:  # another module of this session may have created the rows
        if session.get(DagModel, DAG):
            return
        session.merge(DagBundleModel(name="bundle_of_the_list"))
        session.flush()
        session.add(DagModel(dag_id=DAG, bundle_name="bundle_of_the_list", owners="anna, ben"))
        session.add(DagModel(dag_id="another_dag", bundle_name="bundle_of_the_list", owners="carl"))
        for name, date, user in (("r1", RUN_DATE, None), ("r2", None, "dora")):
            run = DagRun(dag_id=DAG, run_id=name, run_type="manual", logical_date=date, run_after=RUN_DATE)
            run.triggering_user_name = user
            session.add(run)


def row(number, *, connection="near", dag=DAG, run="r1", **more):
    created = format_time(datetime.now(timezone.utc) - timedelta(minutes=number))
    texts = {"namespace": "ml", "name": f"{connection}-{number}", "uid": f"{connection}-{number}", "queue": "gpus"}
    place = {"connection": connection, "dag": dag, "run": run, "task": "train", "index": number, "attempt": 1}
    state = {"phase": "Running", "step": "", "finished": False, "reason": "", "created": created, "ended": ""}
    rest = {"trainer_status": {"loss": float(number), "step": 1, "percent": 5.0}, "usage": None, "newest": True}
    return {**texts, **place, **state, **rest, **more}


@pytest.fixture
def clusters(monkeypatch, runs):
    """Return the rows or the error of each connection, which a test may change."""
    found = {"near": [row(1), row(2, dag="another_dag")], "far": [row(3, connection="far", run="r2")]}

    def fetch(source):
        answer = found[source.connection]
        if isinstance(answer, Exception):
            raise answer
        return JobRows({each["name"]: each for each in answer})

    def fetch_details(source, name):
        rows = fetch(source).rows
        return JobDetails(None, rows[name], [], [], [], []) if name in rows else None

    monkeypatch.setenv("AIRFLOW__TRAINJOB__PAGE_CONNECTIONS", "near, far")
    monkeypatch.setattr(queries, "_fetch_rows", fetch)
    monkeypatch.setattr(queries, "_fetch_details", fetch_details)
    for name in ("_MIN_TTL_SECONDS", "_MAX_TTL_SECONDS"):  # a slow moment of this machine would keep a result
        monkeypatch.setattr(shared_query, name, 0.0)
    queries.list_query.cache_clear()
    queries.details_query.cache_clear()
    yield found
    queries.list_query.cache_clear()
    queries.details_query.cache_clear()


def names(found):
    return [each["name"] for each in found["trainjobs"]]


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", ["near-1", "near-2", "far-3"]),
        ("connection=far", ["far-3"]),
        ("owner=ben", ["near-1", "far-3"]),
        ("owner=carl", ["near-2"]),
        ("user=dora", ["far-3"]),
        (f"dag={DAG}&run=r1", ["near-1"]),
        ("queue=other", []),
        ("sort=created", ["far-3", "near-2", "near-1"]),
        ("sort=-loss", ["far-3", "near-2", "near-1"]),
        ("sort=loss&limit=1&offset=1", ["near-2"]),
        ("until=2020-01-01T00:00:00Z", []),
    ],
)
def test_the_server_filters_and_sorts_the_list(get_as_admin, clusters, query, shown):
    assert names(get_as_admin(f"api/trainjobs?{query}")) == shown


def test_the_counts_and_runs_are_those_of_the_rows(get_as_admin, clusters):
    found = get_as_admin(f"api/trainjobs?dag={DAG}")
    assert found["counts"]["connection"] == {"far": 1, "near": 1}
    assert found["counts"]["owner"] == {"anna": 2, "ben": 2}
    date = format_time(RUN_DATE)
    assert {each["run"]: (each["date"], each["count"]) for each in found["runs"]} == {"r1": (date, 1), "r2": (date, 1)}
    assert {each["run"]: each["run_date"] for each in found["trainjobs"]} == {"r1": date, "r2": date}
    assert get_as_admin("api/trainjobs")["runs"] == []


def test_the_order_reveals_no_loss_without_the_permission_for_xcoms(get_as_admin, clusters, without):
    with without("XCOM"):
        for sort in ("loss", "-loss"):
            found = get_as_admin(f"api/trainjobs?sort={sort}")
            assert names(found) == ["near-1", "near-2", "far-3"]
            assert [each["progress"] for each in found["trainjobs"]] == [None] * 3
    with without("TASK_INSTANCE"):
        found = get_as_admin("api/trainjobs")
        assert (found["total"], any(found["counts"].values())) == (0, False)


def test_rows_of_a_cluster_that_is_away_stay_with_the_time_of_its_last_response(get_as_admin, clusters, without):
    assert names(get_as_admin("api/trainjobs")) == ["near-1", "near-2", "far-3"]
    clusters["far"] = ClusterUnreachable("refused")
    clusters["near"] = [row(1)]
    found = get_as_admin("api/trainjobs")
    assert [bool(each["last_seen"]) for each in found["trainjobs"]] == [False, True]
    assert names(found) == ["near-1", "far-3"]
    assert found["problems"] == ["The cluster of connection far can't be queried: its API server does not respond."]
    seen = datetime.fromisoformat(found["trainjobs"][1]["last_seen"])
    assert timedelta(0) <= datetime.now(timezone.utc) - seen < timedelta(minutes=5)

    details = get_as_admin("api/trainjobs/far/ml/far-3")
    assert "does not respond" in details["problem"]
    assert details["trainjob"]["name"] == "far-3"
    with without("TASK_INSTANCE"):
        assert "trainjob" not in get_as_admin("api/trainjobs/far/ml/far-3")

    clusters["far"] = [row(3, connection="far")]
    assert [each["last_seen"] for each in get_as_admin("api/trainjobs")["trainjobs"]] == ["", ""]


def test_rows_of_a_cluster_that_refuses_the_credentials_do_not_stay(get_as_admin, clusters):
    get_as_admin("api/trainjobs")
    clusters["far"] = PermissionDenied("forbidden")
    assert names(get_as_admin("api/trainjobs")) == ["near-1", "near-2"]
    assert "trainjob" not in get_as_admin("api/trainjobs/far/ml/far-3")


def test_a_cluster_that_never_responded_has_no_rows(get_as_admin, clusters):
    clusters["far"] = ClusterUnreachable("refused")
    assert names(get_as_admin("api/trainjobs")) == ["near-1", "near-2"]
