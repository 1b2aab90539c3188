"""Tests of the page with values that authors and users choose: run keys, XComs, recorded TrainJobs, kubeconfigs.

They run in Airflow's own app, with the fixtures of test_page.py.
"""
# ruff: noqa: F811 - the fixtures are imported

from __future__ import annotations

import hashlib
import json
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.airflow.test_page import (  # noqa: F401 - fixtures
    PAGE_CONNECTIONS,
    app,
    client_of_team,
    environment,
    get_as_admin,
    jobs,
    send_as,
    sweep_query,
    sweep_run,
)
from tests.support.airflow_versions import needs_task_state_store
from tests.support.polling import wait_until
from trainjob.lifecycle import RunKey
from trainjob.manifest import job_name, labels
from trainjob_airflow.operators.submission import STATE_STORE_KEY
from trainjob_airflow.operators.sweep import _has_task_ended
from trainjob_airflow.plugins import api, job_sources, queries
from trainjob_airflow.run_key import get_base_url
from trainjob_airflow.version_compat import get_task_state_store_model

pytestmark = pytest.mark.slow

# Run keys as JSON texts: users can edit the annotation. Airflow's database refuses some of these names.
ODD_KEYS = [
    {"map_index": "9" * 5000},
    {"map_index": "9" * 30},
    {"map_index": "\u00b2"},
    {"map_index": "-7"},
    {"workflow": "\ud800"},
    {"workflow": "a\x00b"},
    {"workflow": "d" * 251},
    {"run": "\ud800"},
    {"run": "a\x00b"},
    {"run": ""},
    {"task": 5},
]
CLASS = {"__classname__": "airflow.sdk.definitions.connection.Connection", "__version__": 1, "__data__": {}}
IMPORTED = {"__classname__": "airflow.example_dags.tutorial.dag", "__version__": 1, "__data__": {}}
# XComs as Airflow's database has them: a string has the JSON of the value.
ODD_XCOMS = [
    json.dumps({"x": IMPORTED, "phase": "Running"}),
    json.dumps({"phase": CLASS, "metrics": CLASS, "usage": CLASS}),
    json.dumps({"a": {"__classname__": "os.system"}}),
    "[" * 100_000,
    '{"phase": "\\ud800", "\\udfff": 1, "metrics": {"\\ud800": 1}}',
    '{"loss": 1e999, "step": NaN, "total": ' + "9" * 4000 + ', "metrics": {"a": -Infinity}}',
    '{"step": {"a": 1}, "metrics": ["reward"], "usage": {"pod_seconds": "x"}, "tracking_url": 5}',
    '{"usage": 5, "log": "x", "events": 5, "kind": {"a": [1]}, "attempt": [1]}',
    "s3://bucket/of/an/xcom/backend.json",
    {"phase": ["Running"], "percent": "100"},
    [1],
    7,
    None,
]
ODD_STATES = [
    '{"attempt": [1], "earlier": [{"name": "a", "namespace": "b", "uid": "c", "attempt": {}}, 5]}',
    '{"name": "\\ud800", "namespace": "b", "uid": "c", "attempt": 1e999, "connection": ["x"], "try_number": "1"}',
    '{"earlier": 5}',
    "[" * 100_000,
    "s3://bucket/state",
]
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)
NAMES = (
    st.sampled_from(["phase", "step", "metrics", "usage", "log", "result", "kind", "attempt", "tracking_url"])
    | st.text()
)
ANY_JSON = st.builds(json.dumps, st.dictionaries(NAMES, JSON_VALUES))


def create_trainjob(cluster, fields):
    """Create a suspended TrainJob whose run key has other fields, under the right name."""
    key = {**RunKey("airflow", "dag_red", "odd", "manual__1", origin=get_base_url()).to_dict(), **fields}
    text = json.dumps(key, sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    metadata = {
        "name": job_name("odd", digest, 1),
        "namespace": "default",
        "labels": {labels.RUN_KEY: digest, labels.ENGINE: "airflow", labels.ATTEMPT: "1"},
        "annotations": {labels.RUN_KEY: text},
    }
    body = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata}
    return cluster.create_trainjob({**body, "spec": {"runtimeRef": {"name": "torch-distributed"}, "suspend": True}})


def list_names(get_as_admin):
    queries.list_query.cache_clear()
    return wait_until(lambda: {row["name"] for row in get_as_admin("api/trainjobs?limit=200")["trainjobs"]})


@pytest.mark.parametrize("fields", ODD_KEYS, ids=lambda fields: str(fields)[:30].encode("ascii", "replace").decode())
def test_an_odd_run_key_hides_no_other_trainjob(get_as_admin, jobs, cluster, fields):
    created = create_trainjob(cluster, fields)
    try:
        names = list_names(get_as_admin)
        assert jobs["dag_red"].name in names
        assert created["metadata"]["name"] not in names
        get_as_admin("api/comparison?dag=dag_red&run=manual__1")
        key = RunKey.from_text(created["metadata"]["annotations"][labels.RUN_KEY])
        assert key is None or _has_task_ended({"ti": None}, key) is None
    finally:
        cluster.delete_trainjob(created["metadata"]["name"], "default", created["metadata"]["uid"])


def test_a_trainjob_that_cannot_be_shown_hides_no_other(get_as_admin, jobs, monkeypatch):
    build_row = queries._build_row

    def fail_for_blue(job, *arguments):
        assert job["metadata"]["name"] != jobs["dag_blue"].name
        return build_row(job, *arguments)

    monkeypatch.setattr(queries, "_build_row", fail_for_blue)
    names = list_names(get_as_admin)
    assert jobs["dag_red"].name in names
    assert jobs["dag_blue"].name not in names
    problems = get_as_admin("api/trainjobs")["problems"]
    assert "1 TrainJobs of connection laptop can't be shown: see the log of Airflow's API server." in problems


def test_a_source_of_a_team_has_only_rows_and_problems_of_it(client_of_team, jobs, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINJOB__PAGE_CONNECTIONS", "blue:laptop, blue:nowhere")
    queries.list_query.cache_clear()
    created = {job.name for job in jobs.values()}

    def names(team):
        return created & {row["name"] for row in client_of_team(team, "api/trainjobs").json()["trainjobs"]}

    wait_until(lambda: names("blue"))
    assert names("blue") == {jobs["dag_blue"].name}
    assert names("red") == set()
    shown = {team: client_of_team(team, "api/trainjobs").json() for team in ("red", "blue")}
    assert shown["red"]["problems"] == []
    assert len(shown["blue"]["problems"]) == 1
    path = f"api/trainjobs/laptop/default/{jobs['dag_red'].name}"
    assert client_of_team("blue", path, "admin").status_code == 404


@pytest.fixture(scope="module")
def stored(sweep_run):
    """Return a function that stores a value for the first task instance of the sweep."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    identity = {"dag_id": "sweeping", "run_id": sweep_run, "task_id": "tune", "map_index": 0}

    def store(key, value):
        model = get_task_state_store_model() if key == STATE_STORE_KEY else XComModel
        if model is XComModel:
            XComModel.set(key, {}, **identity)
        with create_session() as session:
            filters = [getattr(model, name) == each for name, each in {**identity, "key": key}.items()]
            assert session.execute(update(model).where(*filters).values(value=value)).rowcount == 1

    return store


def get_task(get_as_admin, run):
    get_as_admin("api/trainjobs?limit=200")
    get_as_admin(f"api/comparison?{sweep_query(run)}")
    return get_as_admin(f"api/task?{sweep_query(run, task='tune', index=0)}")


@pytest.mark.parametrize("value", ODD_XCOMS, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("key", ["progress", "return_value", "failure"])
def test_an_xcom_is_data(get_as_admin, sweep_run, stored, key, value):
    from sqlalchemy.exc import DBAPIError

    try:
        stored(key, value)
    except DBAPIError as error:  # PostgreSQL refuses some
        assert "psycopg" in str(type(error.orig))
        return
    try:
        shown = get_task(get_as_admin, sweep_run)
        assert "airflow.example_dags.tutorial" not in sys.modules
        assert "Connection object" not in json.dumps(shown)
        if str(value).startswith("s3://"):
            assert dict(shown["summary"])["Not shown"] == f"{key}: another XCom backend stores it ({value})"
    finally:
        stored(key, {})


@needs_task_state_store
@pytest.mark.parametrize("text", ODD_STATES, ids=lambda text: text[:30])
def test_recorded_trainjobs_are_data(get_as_admin, sweep_run, stored, text):
    stored(STATE_STORE_KEY, text)
    get_task(get_as_admin, sweep_run)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(progress=ANY_JSON, result=ANY_JSON, failure=ANY_JSON)
def test_any_xcoms_can_be_shown(get_as_admin, sweep_run, stored, progress, result, failure):
    for key, value in (("progress", progress), ("return_value", result), ("failure", failure)):
        stored(key, value)
    get_task(get_as_admin, sweep_run)


# -- connections -----------------------------------------------------------------------------------------------------


@pytest.fixture
def plugin(laptop, tmp_path, monkeypatch):
    """Define the connection `plugin`; its credential plugin creates the returned file."""
    import yaml

    kubeconfig = yaml.safe_load(laptop.kubeconfig.read_text())
    command = ["-c", f"touch {tmp_path}/ran; exit 1"]
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": command}
    for user in kubeconfig["users"]:
        user["user"] = {"exec": {**plugin, "interactiveMode": "Never"}}
    extra = {"kube_config": kubeconfig, "namespace": "default", "trainjob_pods_url": "{server}/pods"}
    monkeypatch.setenv("AIRFLOW_CONN_PLUGIN", json.dumps({"conn_type": "kubernetes", "extra": extra}))
    yield tmp_path / "ran"
    queries.list_query.cache_clear()
    job_sources._cached_cluster.cache_clear()


def test_the_page_runs_no_credential_plugin_unless_it_may(get_as_admin, jobs, plugin, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINJOB__PAGE_CONNECTIONS", "laptop, plugin")
    assert jobs["dag_red"].name in list_names(get_as_admin)
    assert get_as_admin("api/trainjobs")["problems"] == [
        (
            "The cluster of connection plugin can't be queried: its kubeconfig runs a credential plugin, and "
            "page_credential_plugins is not set."
        )
    ]
    assert not plugin.exists()
    monkeypatch.setenv("AIRFLOW__TRAINJOB__PAGE_CREDENTIAL_PLUGINS", "True")
    list_names(get_as_admin)
    assert plugin.exists()


@needs_task_state_store
def test_a_recorded_connection_is_not_read(get_as_admin, sweep_run, stored, plugin, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINJOB__PAGE_CREDENTIAL_PLUGINS", "True")
    stored(STATE_STORE_KEY, json.dumps({"name": "a", "namespace": "b", "uid": "c", "connection": "plugin"}))
    shown = get_task(get_as_admin, sweep_run)
    assert {"a": []}.items() <= {each["name"]: each["links"][1:] for each in shown["attempts"]}.items()
    assert not plugin.exists()


def test_an_unexpected_error_has_the_headers_of_the_page(app, monkeypatch):
    from airflow.api_fastapi.core_api.security import get_user
    from fastapi.testclient import TestClient

    monkeypatch.setattr(api, "list_usable_sources", lambda user: 1 / 0)
    page = api.make_app()
    page.dependency_overrides[get_user] = lambda: None
    response = TestClient(page, raise_server_exceptions=False).get("/api/trainjobs")
    assert response.status_code == 500
    assert response.headers["Content-Security-Policy"].startswith("default-src 'none'")
