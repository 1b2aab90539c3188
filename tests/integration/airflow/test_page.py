"""Tests of the page's server side in Airflow's own app, with its permission checks.

`make e2e-airflow` runs them on PostgreSQL.
"""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest

from tests.support.airflow_versions import AIRFLOW_VERSION, needs_task_state_store
from tests.support.polling import wait_until
from tests.support.postgresql import MISSING, find_programs
from trainjob import CustomTrainerContainer, TrainJob
from trainjob.lifecycle import RunKey, submit
from trainjob_airflow.plugins import api, queries, shared_query

# The first two lead to one cluster. The third has no cluster, and the fourth does not exist.
PAGE_CONNECTIONS = "laptop, laptop/elsewhere, nowhere, missing"
# The script and the file are no addresses that a browser may open.
LINK_TEMPLATES = {
    "trainjob_url": "https://dashboard.example/{namespace}/{name}",
    "trainjob_pods_url": "{server}/pods?of={uid}",
    "trainjob_logs_url": "javascript:alert('{name}')",
    "trainjob_metrics_url": "file:///etc/passwd",
}
SCRIPT = (
    "echo 'epochs: 2'; for n in 1 2 3 4 5 6; do echo \"1|$n|Loss: 2.$n:  10%|##| $n/6 [x\"; done; "
    "echo '<script>alert(1)</script> password is hunter2-hunter2'; sleep 600"
)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(laptop, request):
    """Set the environment of Airflow's processes; the connections are in its database."""
    if request.config.getoption("--postgresql") and not find_programs():
        pytest.skip(MISSING)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW__TRAINJOB__PAGE_CONNECTIONS", PAGE_CONNECTIONS)
        patch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
        patch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "s" * 64)
        patch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as airflow.api_fastapi.main does
        yield


@pytest.fixture(scope="module")
def app(environment, airflow, laptop):
    from airflow.api_fastapi.app import create_app
    from airflow.models import Connection
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.team import Team
    from airflow.utils.session import create_session
    from sqlalchemy import select

    extra = {"kube_config_path": str(laptop.kubeconfig), "namespace": "default", **LINK_TEMPLATES}
    nowhere = {"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}], "users": []}
    nowhere |= {"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}
    with create_session() as session:  # another module of this session may have created some of the rows
        for name, settings in (("laptop", extra), ("nowhere", {"kube_config": nowhere, "namespace": "default"})):
            if not session.scalar(select(Connection.id).where(Connection.conn_id == name)):
                password = "hunter2-hunter2"
                session.add(Connection(name, "kubernetes", extra=json.dumps(settings), password=password))
        for team in ("red", "blue"):
            bundle = session.get(DagBundleModel, f"bundle_{team}") or DagBundleModel(name=f"bundle_{team}")
            if not bundle.teams:
                with_id = {"id": uuid.uuid4()} if hasattr(Team, "id") else {}  # Airflow 3.1
                bundle.teams = [session.scalar(select(Team).where(Team.name == team)) or Team(name=team, **with_id)]
            session.add(bundle)
            session.flush()
            session.merge(DagModel(dag_id=f"dag_{team}", bundle_name=f"bundle_{team}"))
    return create_app("core")


@pytest.fixture(scope="module")
def send_as(app):
    """Return a function that sends a request as a user with attributes; None is no user."""
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from fastapi.testclient import TestClient

    client = TestClient(app)

    def send(attributes, path, method="GET"):
        headers = {}
        if attributes:
            user = SimpleAuthManagerUser(**attributes)
            headers["Authorization"] = f"Bearer {get_auth_manager().generate_jwt(user)}"
        return client.request(method, f"/trainjob/{path}", headers=headers)

    return send


@pytest.fixture(scope="module")
def client_of_team(send_as):
    """Return a function that sends a request as a user of a team; None means no user."""
    if AIRFLOW_VERSION < (3, 2):
        pytest.skip("the users of Airflow 3.1's simple auth manager have no teams")

    def send(team, path, role="viewer", method="GET"):
        attributes = {"username": f"of-{team}", "role": role, "teams": [team]} if team else None
        return send_as(attributes, path, method)

    return send


@pytest.fixture(scope="module")
def get_as_admin(send_as):
    """Return a function that returns the JSON of a path for an administrator."""

    def get(path):
        response = send_as({"username": "admin", "role": "admin"}, path)
        assert response.status_code == 200, response.text
        return response.json()

    return get


def submit_trainjob(cluster, dag, *, script=SCRIPT, origin=None, run="manual__1"):
    from trainjob_airflow.run_key import get_base_url

    key = RunKey("airflow", dag, "train", run, origin=get_base_url() if origin is None else origin)
    env = {"CONFIDENTIAL_VALUE": "hunter3-hunter3"}
    trainer = CustomTrainerContainer(image="busybox", command=["sh", "-c", script], env=env)
    return submit(cluster, TrainJob(trainer=trainer), key)


@pytest.fixture(scope="module")
def jobs(app, cluster):
    """Create a TrainJob of each team's DAG, and two that belong to no DAG of this Airflow."""
    created = {dag: submit_trainjob(cluster, dag) for dag in ("dag_red", "dag_blue", "dag_unknown")}
    created["of_another_airflow"] = submit_trainjob(cluster, "dag_red", origin="http://other", script="true")
    yield created
    for job in created.values():
        cluster.delete_trainjob(job.name, job.namespace, job.uid)


def test_a_user_sees_only_the_trainjobs_of_readable_dags(client_of_team, jobs, record_case):
    red, blue = jobs["dag_red"].name, jobs["dag_blue"].name
    created = {job.name for job in jobs.values()}

    def names(response):
        """Return the names of this module's TrainJobs, because others are visible to all teams."""
        assert response.status_code == 200, response.text
        return created & {row["name"] for row in response.json()["trainjobs"]}

    assert wait_until(lambda: red in names(client_of_team("red", "api/trainjobs")))
    assert names(client_of_team("red", "api/trainjobs")) == {red}
    assert names(client_of_team("blue", "api/trainjobs")) == {blue}
    assert names(client_of_team("green", "api/trainjobs")) == set()
    # An admin may read every DAG that Airflow knows, but no DAG that it does not know.
    assert names(client_of_team("red", "api/trainjobs", role="admin")) == {red, blue}
    assert names(client_of_team("red", "api/trainjobs?dag=dag_red&run=manual__1&task=train")) == {red}
    assert names(client_of_team("red", "api/trainjobs?dag=dag_red&run=another")) == set()
    record_case("page: TrainJobs of DAGs that a user may not read", "not listed")


def test_pages_and_counts_include_only_trainjobs_of_readable_dags(client_of_team, jobs):
    name = jobs["dag_red"].name
    shown = wait_until(
        lambda: found if (found := client_of_team("red", "api/trainjobs?dag=dag_red").json())["trainjobs"] else None
    )
    assert ([row["name"] for row in shown["trainjobs"]], shown["total"]) == ([name], 1)
    assert sum(shown["counts"]["phase"].values()) == shown["counts"]["dag"]["dag_red"] == 1
    assert {"dag_blue", "dag_unknown"}.isdisjoint(shown["counts"]["dag"])
    phase = shown["trainjobs"][0]["phase"]
    for query, total in ((f"phase={phase}", 1), ("phase=Failed", 0), (f"text={name.upper()}", 1), ("text=dag_blue", 0)):
        assert client_of_team("red", f"api/trainjobs?dag=dag_red&{query}").json()["total"] == total, query
    unreadable = client_of_team("red", "api/trainjobs?dag=dag_blue").json()
    assert (unreadable["trainjobs"], unreadable["total"]) == ([], 0)
    # an administrator gets both, one on each page
    pages = [client_of_team("red", f"api/trainjobs?text=dag_&limit=1&offset={n}", "admin").json() for n in range(2)]
    assert {page["trainjobs"][0]["dag"] for page in pages} == {"dag_red", "dag_blue"}
    assert [(page["total"], page["offset"]) for page in pages] == [(2, 0), (2, 1)]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", "offset=-1", "limit=x", "sort=secret", "sort=--name", "since=x"]
)
def test_a_page_outside_of_the_limits_is_refused(client_of_team, query):
    assert client_of_team("red", f"api/trainjobs?{query}").status_code == 422


def test_the_first_request_reports_that_the_query_runs(client_of_team, jobs, monkeypatch, record_case):
    """It is no problem that the cluster has not responded yet."""
    monkeypatch.setattr(shared_query, "_MAX_WAIT_SECONDS", 0.0)
    queries.list_query.cache_clear()
    path = f"api/trainjobs/laptop/default/{jobs['dag_red'].name}"
    assert client_of_team("red", path).json() == {"problem": "", "loading": ["laptop"]}
    shown = client_of_team("red", "api/trainjobs").json()
    assert shown["loading"]
    assert not any("laptop" in problem for problem in shown["problems"])
    wait_until(lambda: not client_of_team("red", "api/trainjobs").json()["loading"])
    record_case("page: first request after the start of the API server", "the page reports that the query runs")


@pytest.mark.parametrize("end", ["", "/log", "/log.txt"])
def test_an_unreadable_trainjob_has_the_same_response_as_a_missing_one(client_of_team, jobs, record_case, end):
    absent = client_of_team("red", f"api/trainjobs/laptop/default/absent{end}")
    for name in ("dag_blue", "dag_unknown", "of_another_airflow"):
        found = client_of_team("red", f"api/trainjobs/laptop/default/{jobs[name].name}{end}")
        assert (found.status_code, found.json()) == (404, absent.json())
    assert client_of_team("red", f"api/trainjobs/another/default/{jobs['dag_red'].name}{end}").status_code == 404
    assert client_of_team("red", f"api/trainjobs/laptop/elsewhere/{jobs['dag_red'].name}{end}").status_code == 404
    record_case("page: details and log of such a TrainJob", "404, as for a missing one")


@pytest.mark.parametrize(
    "path",
    [
        "api/trainjobs",
        "api/trainjobs/laptop/default/x",
        "api/trainjobs/laptop/default/x/log",
        "api/trainjobs/laptop/default/x/log.txt",
        "api/task?dag=dag_red&run=manual__1&task=train",
        "api/comparison?dag=dag_red&run=manual__1",
    ],
)
def test_a_request_without_a_user_is_refused(send_as, record_case, path):
    assert send_as(None, path).status_code == 401
    record_case("page: requests without a login", "401")


def test_the_api_is_read_only(client_of_team, jobs, record_case):
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        path = f"api/trainjobs/laptop/default/{jobs['dag_red'].name}"
        assert client_of_team("red", path, role="admin", method=method).status_code == 405
    record_case("page: POST, PUT, PATCH and DELETE for a TrainJob", "405")


def test_the_details_have_ranks_conditions_and_events_but_no_spec(client_of_team, jobs):
    path = f"api/trainjobs/laptop/default/{jobs['dag_red'].name}"

    def running():
        found = client_of_team("red", path).json()
        return found if found["trainjob"]["phase"] == "Running" and found["ranks"] else None

    found = wait_until(running)
    assert [(rank["step"], rank["rank"], rank["phase"], rank["restarts"]) for rank in found["ranks"]] == [
        ("node", 0, "Running", 0)
    ]
    assert (found["trainjob"]["dag"], found["trainjob"]["task"], found["trainjob"]["index"]) == ("dag_red", "train", -1)
    assert {"hunter3-hunter3", "CONFIDENTIAL_VALUE"}.isdisjoint(json.dumps(found).split('"'))
    assert "hunter3" not in json.dumps(found)


def test_events_of_the_trainjob_and_warnings_of_its_pods_are_shown(client_of_team, jobs, cluster):
    name = jobs["dag_red"].name
    for object_kind, event_type in (("TrainJob", "Normal"), ("Pod", "Normal"), ("Pod", "Warning")):
        message = f"{object_kind.lower()}-{event_type.lower()}"
        involved = {
            "kind": object_kind,
            "namespace": "default",
            "name": name if object_kind == "TrainJob" else f"{name}-node-0-0-x",
        }
        event = {
            "metadata": {"name": f"{name}.{message}"},
            "involvedObject": involved,
            "type": event_type,
            "reason": "Test",
        }
        event |= {"message": message, "lastTimestamp": "2026-01-01T00:00:00Z", "count": 3}
        cluster._http.request("POST", "/api/v1/namespaces/default/events", doing="create an event", body=event)

    def find_events():
        events = client_of_team("red", f"api/trainjobs/laptop/default/{name}").json()["events"]
        return {event["message"]: event for event in events if event["reason"] == "Test"}

    found = wait_until(find_events)
    assert set(found) == {"trainjob-normal", "pod-warning"}
    assert (found["pod-warning"]["type"], found["pod-warning"]["count"]) == ("Warning", 3)


def test_the_log_has_lines_progress_and_a_curve_and_masks_airflows_secrets(client_of_team, jobs):
    path = f"api/trainjobs/laptop/default/{jobs['dag_red'].name}/log"

    def find_log():
        found = client_of_team("red", path).json()
        return found if len(found["points"]) == 6 and "password" in found["lines"][-1] else None

    found = wait_until(find_log)
    assert found["points"] == [[n, 2 + n / 10] for n in range(1, 7)]
    assert (found["curve"], found["evaluation_points"]) == ("loss", [])
    assert (found["progress"]["step"], found["progress"]["total"], found["progress"]["percent"]) == (6, 12, 50.0)
    assert found["lines"][-1] == "[node-0] <script>alert(1)</script> password is ***"
    without_lines = client_of_team("red", f"{path}?lines=false").json()
    assert (without_lines["lines"], without_lines["points"]) == ([], found["points"])

    file = client_of_team("red", f"{path}.txt")
    assert file.text.splitlines() == found["lines"]
    assert file.headers["Content-Type"].startswith("text/plain")
    name = jobs["dag_red"].name
    assert file.headers["Content-Disposition"] == f'attachment; filename="{name}.log"'


def test_a_log_requires_the_permission_to_read_task_logs(client_of_team, jobs, monkeypatch, record_case):
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity

    manager = get_auth_manager()
    is_authorized_dag = manager.is_authorized_dag

    def without_logs(*, access_entity=None, **more):
        return access_entity is not DagAccessEntity.TASK_LOGS and is_authorized_dag(access_entity=access_entity, **more)

    monkeypatch.setattr(manager, "is_authorized_dag", without_logs)
    path = f"api/trainjobs/laptop/default/{jobs['dag_red'].name}"
    assert client_of_team("red", path).json()["problem"] == ""
    refused = "You may not read the logs of the DAG dag_red."
    assert client_of_team("red", f"{path}/log").json() == {"problem": refused}
    file = client_of_team("red", f"{path}/log.txt")
    assert (file.status_code, file.json()) == (404, {"detail": refused})
    record_case("page: log without the permission to read task logs", "details without the log")


def test_a_failed_query_is_reported_without_the_address_of_the_cluster(client_of_team, jobs):
    response = client_of_team("red", "api/trainjobs")
    assert response.status_code == 200
    assert response.json()["problems"] == [
        "The cluster of connection nowhere can't be queried: its API server does not respond.",
        (
            "The cluster of connection missing can't be queried: "
            "the connection does not exist, or it names no usable cluster."
        ),
    ]


@pytest.mark.parametrize("path", ["task?task=train&", "comparison?"])
def test_an_unreadable_run_has_the_same_response_as_a_missing_one(client_of_team, jobs, path):
    missing = client_of_team("red", f"api/{path}dag=dag_none&run=manual__1")
    assert missing.status_code == 404
    for dag in ("dag_blue", "dag_unknown"):
        found = client_of_team("red", f"api/{path}dag={dag}&run=manual__1")
        assert (found.status_code, found.json()) == (404, missing.json())


def test_the_pages_files_allow_no_foreign_scripts(send_as, record_case):
    for name in ("", "page.js", "page.css", "api/trainjobs"):
        response = send_as(None, name)
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
    scripts = [path.name for path in (Path(api.__file__).parent / "assets").glob("*.js")]
    assert "page.js" in scripts
    for name in ("", *scripts):
        text = send_as(None, name).text
        for foreign in ("innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "https://", "onclick="):
            assert foreign not in text, name
    record_case("page: Content-Security-Policy", "`default-src 'none'`, no `unsafe` source, no other server")


# -- a sweep whose tasks ran in Airflow -------------------------------------------------------------------------------
# These tests come last: `airflow dags test` removes the teams that this module has created.


@pytest.fixture(scope="module")
def sweep_run(app, airflow, cluster):
    """Run the DAG `sweeping`, and return the ID of its run."""
    done = airflow("dags", "test", "sweeping")
    run = find_newest_run("sweeping")
    assert run, done.stdout[-4000:]
    return run


def find_newest_run(dag):
    """Return the ID of the newest run of a DAG; None if it has none."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        statement = select(DagRun.run_id).where(DagRun.dag_id == dag).order_by(DagRun.id.desc())
        return session.scalars(statement.limit(1)).first()


def sweep_query(run, **more):
    return urlencode({"dag": "sweeping", "run": run, **more})


def test_the_trainjobs_of_a_run_are_compared(get_as_admin, sweep_run):
    found = wait_until(
        lambda: shown if (shown := get_as_admin(f"api/comparison?{sweep_query(sweep_run)}"))["groups"] else None
    )
    [group] = found["groups"]
    assert (group["operator"], group["parameters"]) == ("TrainJobOperator", ["trainer.env.RATE"])
    assert group["metrics"] == [{"name": "loss", "better": "lower"}]
    rows = [(row["index"], row["phase"], row["parameters"], row["metrics"], row["best"]) for row in group["rows"]]
    assert rows == [
        (0, "Complete", {"trainer.env.RATE": "0.1"}, {"loss": 1.1}, ["loss"]),
        (1, "Complete", {"trainer.env.RATE": "0.2"}, {"loss": 1.2}, []),
        (2, "Failed", {"trainer.env.RATE": "0.3"}, {"loss": 1.3}, []),
    ]
    assert [row["job"] is None for row in group["rows"]] == [False, False, True]  # the failed one was deleted
    assert get_as_admin(f"api/comparison?{sweep_query(sweep_run, task='another')}")["groups"] == []


def test_a_task_instance_has_its_trainjobs_with_links_and_a_summary(get_as_admin, sweep_run, cluster):
    path = f"api/task?{sweep_query(sweep_run, task='tune', index=0)}"
    found = wait_until(lambda: shown if (shown := get_as_admin(path))["attempts"] else None)
    [attempt] = found["attempts"]
    assert (attempt["phase"], attempt["attempt"], attempt["connection"]) == ("Complete", 1, "laptop")
    assert attempt["links"] == [
        {"name": "TrainJob", "url": f"https://dashboard.example/default/{attempt['name']}"},
        {"name": "Pods", "url": f"{cluster.server}/pods?of={attempt['uid']}"},
        {"name": "Tracked run", "url": "https://mlflow.example/runs/0.1"},
    ]
    summary = dict(found["summary"])
    assert summary["State"] == "success, try 1"
    assert (summary["Phase"], summary["Step"], summary["Loss"]) == ("Complete", "10 of 10", "1.1")
    assert found["failure"] is None
    assert "kube_config" not in json.dumps(found)


@needs_task_state_store
def test_a_deleted_trainjob_has_links(get_as_admin, sweep_run, monkeypatch):
    extra = {"trainjob_metrics_url": "https://grafana.example/?job={name}", "namespace": "default"}
    connection = json.dumps({"conn_type": "kubernetes", "extra": extra})
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", connection)  # the task's connection
    monkeypatch.setenv("AIRFLOW__TRAINJOB__PAGE_CONNECTIONS", f"{PAGE_CONNECTIONS}, kubernetes_default")
    [attempt] = get_as_admin(f"api/task?{sweep_query(sweep_run, task='tune', index=2)}")["attempts"]
    assert (attempt["phase"], attempt["try_number"], attempt["connection"]) == ("", 1, "kubernetes_default")
    assert attempt["links"] == [
        {"name": "Metrics", "url": f"https://grafana.example/?job={attempt['name']}"},
        {"name": "Tracked run", "url": "https://mlflow.example/runs/0.3"},
    ]


def test_a_stored_failure_is_shown_with_the_permissions_for_xcoms_and_logs(get_as_admin, sweep_run, without):
    from airflow.models.xcom import XComModel

    shown = {
        "kind": "CommandFailed",
        "reason": "RestartLimitExceeded",
        "trainjob": "default/tune",
        "attempt": 1,
        "uid": "u",
    }
    stored = {**shown, "step": "node", "rank": 0, "log": ["<b>password</b> is hunter2-hunter2"]}
    identity = {"dag_id": "sweeping", "run_id": sweep_run, "task_id": "tune", "map_index": 2}
    XComModel.set("failure", stored, **identity)
    path = f"api/task?{sweep_query(sweep_run, task='tune', index=2)}"
    lines = {"description": ["step node, rank 0"], "log": ["<b>password</b> is ***"]}
    assert get_as_admin(path)["failure"] == {**shown, **lines}
    with without("TASK_LOGS"):
        assert get_as_admin(path)["failure"] == {**shown, "description": [], "log": []}
    with without("XCOM"):
        found = get_as_admin(path)
        [group] = get_as_admin(f"api/comparison?{sweep_query(sweep_run)}")["groups"]
    assert found["failure"] is None
    assert "Loss" not in dict(found["summary"])
    assert [row["metrics"] for row in group["rows"]] == [{}, {}, {}]


@pytest.fixture
def without(monkeypatch):
    """Return a context manager in which no user has the permission for an entity."""
    from airflow.api_fastapi.app import get_auth_manager

    manager = get_auth_manager()
    is_authorized_dag = manager.is_authorized_dag

    @contextmanager
    def removed(name):
        def is_authorized(*, access_entity=None, **more):
            return access_entity.name != name and is_authorized_dag(access_entity=access_entity, **more)

        with monkeypatch.context() as patch:
            patch.setattr(manager, "is_authorized_dag", is_authorized)
            yield

    return removed
