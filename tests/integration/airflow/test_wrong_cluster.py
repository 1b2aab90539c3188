"""Tests of workers and triggerers that reach different clusters, because their connections differ."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.integration.airflow.state_store import StateStore
from tests.integration.airflow.test_errors_after_creation import active_uids, delete_trainjobs, make_context, operator
from trainjob.client import Cluster, Connection
from trainjob.errors import WrongCluster
from trainjob_airflow import TrainJobSensor
from trainjob_airflow.version_compat import TaskDeferred
from trainjob_local import LocalCluster

pytestmark = pytest.mark.usefixtures("airflow_environment")


def use_connection(monkeypatch, kubeconfig):
    extra = {"kube_config": kubeconfig, "namespace": "default"}
    monkeypatch.setenv("AIRFLOW_CONN_KUBERNETES_DEFAULT", json.dumps({"conn_type": "kubernetes", "extra": extra}))


@pytest.fixture(scope="module")
def other_laptop(tmp_path_factory, trainjob_cluster_options):
    with LocalCluster(tmp_path_factory.mktemp("other-cluster"), **trainjob_cluster_options) as cluster:
        yield cluster


@pytest.fixture
def go_to_other_cluster(other_laptop, monkeypatch):
    """Return a function that gives the rest of the test the connection of the other cluster."""
    return lambda: use_connection(monkeypatch, other_laptop.kubeconfig.read_text())


@pytest.fixture
def deferred(cluster, unique):
    """Yield the context of a task without retries, and the trigger of its deferral."""
    task = operator()
    context = {**make_context(task, unique), "task_state_store": StateStore()}
    with pytest.raises(TaskDeferred) as raised:
        task.execute(context)
    yield context, raised.value.trigger
    delete_trainjobs(cluster, context)


def fire(trigger):
    async def first_event():
        return (await anext(trigger.run())).payload

    return json.loads(json.dumps(asyncio.run(asyncio.wait_for(first_event(), 60))))


def test_the_wait_fails_and_retains_the_trainjob(cluster, deferred, other_laptop, go_to_other_cluster):
    context, trigger = deferred
    go_to_other_cluster()
    event = fire(trigger)
    assert (event["kind"], event["retryable"]) == ("WrongCluster", True)
    assert cluster.server in event["error"]
    assert other_laptop.server in event["error"]
    with pytest.raises(WrongCluster):  # no retry follows, and the worker may reach either cluster
        operator().resume_execution("execute_complete", {"event": event}, context)
    assert active_uids(cluster, context) == [trigger.reference["uid"]]


@pytest.mark.parametrize("action", ["delete", "suspend"])
def test_a_kill_is_logged_as_an_error_and_changes_nothing(cluster, deferred, go_to_other_cluster, capsys, action):
    context, trigger = deferred
    go_to_other_cluster()
    trigger.on_kill_action = action
    asyncio.run(trigger.on_kill())
    assert f"WrongCluster: TrainJob {trigger.reference['namespace']}" in (logged := capsys.readouterr().out)
    assert cluster.server in logged
    assert active_uids(cluster, context) == [trigger.reference["uid"]]


def test_the_next_try_starts_nothing_beside_the_trainjob(cluster, deferred, other_laptop, go_to_other_cluster):
    """A person who clears the task may have moved it to the other cluster."""
    context, trigger = deferred
    go_to_other_cluster()
    context["ti"].try_number = 2
    with pytest.raises(WrongCluster, match=re.escape(cluster.server)):
        operator().execute(context)
    context["ti"].max_tries = 3
    with pytest.raises(TaskDeferred) as raised:
        operator().execute(context)
    assert raised.value.trigger.reference["cluster"]["server"] == other_laptop.server
    assert active_uids(cluster, context) == [trigger.reference["uid"]]


def test_a_sensor_does_not_take_the_other_clusters_trainjob(cluster, deferred, go_to_other_cluster):
    """The other cluster could have a TrainJob of the name."""
    context, trigger = deferred
    with pytest.raises(TaskDeferred) as raised:
        context["ti"].start_date = datetime.now(timezone.utc)
        TrainJobSensor(task_id="t", name=trigger.reference["name"]).execute(context)
    go_to_other_cluster()
    event = fire(raised.value.trigger)
    assert (event["kind"], event["retryable"]) == ("WrongCluster", True)
    assert cluster.server in event["error"]


def test_another_address_of_the_same_cluster_is_no_difference(cluster, laptop, deferred, monkeypatch):
    context, trigger = deferred
    use_connection(monkeypatch, laptop.kubeconfig.read_text().replace("127.0.0.1", "localhost"))
    delete_trainjobs(cluster, context)
    assert fire(trigger)["outcome"]["phase"] == "Deleted"


def test_the_certificate_authority_is_read_from_a_file_and_from_a_text(cluster, laptop):
    config = json.loads(laptop.kubeconfig.read_text())
    content = config["clusters"][0]["cluster"]
    path = Path(content.pop("certificate-authority"))
    content["certificate-authority-data"] = b64encode(path.read_bytes()).decode()
    embedded = Cluster(Connection(kubeconfig_text=json.dumps(config)))
    assert embedded.identity == cluster.identity
    assert len(cluster.identity.authorities) == 1
