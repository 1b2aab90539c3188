"""Deferred and waiting tasks on the real control plane while their namespace is removed.

The tasks use a service account with the permissions that this project ships for Airflow.
"""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest

from control_plane import ControlPlane
from tests.support.accounts import kubeconfig_with_token
from tests.support.kubernetes_client import Client
from tests.support.shipped_manifests import create_restricted_token
from tests.support.standalone import wait_for_airflow

pytestmark = pytest.mark.timeout(600)
TASKS = ("deferred", "on_worker")


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    if reason := ControlPlane.unavailable_reason():
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("plane") / "state") as started:
        yield started


@pytest.fixture(scope="module")
def admin(plane):
    with closing(Client.from_kubeconfig(str(plane.kubeconfig))) as client:
        yield client


@pytest.fixture
def team(plane, admin, airflow, unique, tmp_path):
    """Create a namespace, and an Airflow connection for it.

    The service account of the connection is in another namespace, as with Airflow's Helm chart.
    """
    home = f"{unique}-airflow"
    for namespace in (unique, home):
        admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    wait_for_airflow(lambda: admin.find("ServiceAccount", unique, "default"), 60)
    token = create_restricted_token(admin, unique, "airflow", home)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kubeconfig_with_token(str(plane.kubeconfig), token, unique))
    extra = json.dumps({"kube_config_path": str(kubeconfig), "namespace": unique})
    body = {"connection_id": unique, "conn_type": "kubernetes", "extra": extra}
    airflow.request("POST", "/api/v2/connections", body)
    return unique


@pytest.fixture
def run(airflow, admin, team, tmp_path):
    """Start a run whose two tasks wait for their TrainJobs in the namespace."""
    run = airflow.start_run("team", go=str(tmp_path), connection=team)

    def is_waiting():
        pods = admin.list("Pod", team)
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        states = [airflow.get_state(run, task) for task in TASKS]
        return len(running) == len(TASKS) and states == ["deferred", "running"]

    wait_for_airflow(is_waiting, 150)
    yield run
    (tmp_path / "task").touch()


def test_tasks_fail_when_their_namespace_is_deleted(airflow, admin, team, run, record_case):
    admin.delete("Namespace", None, team)
    deleted_at = time.monotonic()
    wait_for_airflow(lambda: [airflow.get_state(run, task) for task in TASKS] == ["failed", "failed"], 120)
    record_case("namespace deleted (real API server)", f"both tasks failed after {time.monotonic() - deleted_at:.1f} s")
