"""Deferred and waiting tasks on the real control plane while their permissions or their namespace are removed.

The tasks use a service account with the permissions that this project ships for Airflow.
"""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest

from control_plane import ControlPlane
from tests.support.accounts import create_account, create_token, kubeconfig_with_token
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
    """Create a namespace, a service account and an Airflow connection with its token."""
    admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    wait_for_airflow(lambda: admin.find("ServiceAccount", unique, "default"), 60)
    token = create_restricted_token(admin, unique, "airflow")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kubeconfig_with_token(str(plane.kubeconfig), token, unique))
    extra = json.dumps({"kube_config_path": str(kubeconfig), "namespace": unique})
    body = {"connection_id": unique, "conn_type": "kubernetes", "extra": extra}
    airflow.request("POST", "/api/v2/connections", body)
    return unique, kubeconfig


@pytest.fixture
def run(airflow, admin, team, tmp_path):
    """Start a run whose two tasks wait for their TrainJobs in the namespace."""
    run = airflow.start_run("team", go=str(tmp_path), connection=team[0])

    def is_waiting():
        pods = admin.list("Pod", team[0])
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        states = [airflow.get_state(run, task) for task in TASKS]
        return len(running) == len(TASKS) and states == ["deferred", "running"]

    wait_for_airflow(is_waiting, 150)
    yield run
    (tmp_path / "task").touch()


def test_tasks_succeed_after_their_token_was_revoked_for_40_seconds(
    airflow, admin, plane, team, run, tmp_path, record_case
):
    namespace, kubeconfig = team
    admin.delete("ServiceAccount", namespace, "robot")  # its tokens are invalid from now on
    (tmp_path / "task").touch()
    revoked_at = time.monotonic()
    wait_for_airflow(lambda: time.monotonic() - revoked_at >= 40, 60)
    create_account(admin, namespace)
    new = kubeconfig.with_suffix(".new")
    new.write_text(kubeconfig_with_token(str(plane.kubeconfig), create_token(admin, namespace), namespace))
    new.replace(kubeconfig)
    began = time.monotonic()
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 200)
    assert airflow.get_state(run) == "success"
    tries = [airflow.request("GET", f"{run}/taskInstances/{task}")["try_number"] for task in TASKS]
    assert tries == [1, 1]
    assert len(admin.list("TrainJob", namespace)) == len(TASKS)
    record_case("token revoked 40 s (real API server)", f"success in try 1, {time.monotonic() - began:.1f} s later")


def test_tasks_fail_when_their_namespace_is_deleted(airflow, admin, team, run, record_case):
    admin.delete("Namespace", None, team[0])
    deleted_at = time.monotonic()
    wait_for_airflow(lambda: [airflow.get_state(run, task) for task in TASKS] == ["failed", "failed"], 120)
    record_case("namespace deleted (real API server)", f"both tasks failed after {time.monotonic() - deleted_at:.1f} s")
