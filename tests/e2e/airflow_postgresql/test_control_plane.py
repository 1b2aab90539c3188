"""Deferred and waiting tasks on the real control plane while their token is revoked, or their namespace is removed.

The tasks use a service account with the permissions that this project ships for Airflow.
"""

from __future__ import annotations

import json
import time
from contextlib import closing

import pytest

from control_plane import ControlPlane
from tests.support.accounts import create_account, create_token
from tests.support.api_proxy import ApiProxy
from tests.support.kubernetes_client import Client, path_of
from tests.support.shipped_manifests import create_restricted_token
from tests.support.standalone import wait_for_airflow
from tests.support.trainjobs import is_finished

pytestmark = pytest.mark.timeout(600)
TASKS = ("deferred", "on_worker")
WAITING = ["deferred", "running"]  # states of the tasks while their TrainJobs run


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


@pytest.fixture(scope="module")
def plane_proxy(plane):
    with ApiProxy(plane) as started:
        yield started


class Team:
    """A namespace, and the service account with which Airflow uses it.

    The account is in another namespace, as with Airflow's Helm chart. Airflow reads its token from a file.

    Attributes:
        namespace: name of the namespace.
    """

    def __init__(self, admin, namespace, folder):
        self._admin, self.namespace, self._home = admin, namespace, f"{namespace}-airflow"
        self._token_file = folder / "token"
        for name in (namespace, self._home):
            admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        wait_for_airflow(lambda: admin.find("ServiceAccount", namespace, "default"), 60)
        self._write_token(create_restricted_token(admin, namespace, "airflow", self._home))

    def kubeconfig(self, server):
        """Return a kubeconfig for a server, with the token's file."""
        context = {"cluster": "c", "user": "u", "namespace": self.namespace}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": context}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"tokenFile": str(self._token_file)}}],
        }

    def revoke_token(self):
        """Delete the service account, and wait until the API server refuses its token.

        The API server caches the result of its check for 10 s.
        """
        self._admin.delete("ServiceAccount", self._home, "robot")
        with closing(self._admin.with_token(self._token_file.read_text())) as robot:
            path = path_of("TrainJob", self.namespace)
            wait_for_airflow(lambda: robot.request("GET", path).code == 401, 60)

    def renew_token(self):
        """Create the service account again, and write its token to the file."""
        create_account(self._admin, self._home)
        self._write_token(create_token(self._admin, self._home))

    def _write_token(self, token):
        new = self._token_file.with_suffix(".new")
        new.write_text(token)
        new.replace(self._token_file)


@pytest.fixture
def team(plane_proxy, admin, airflow, unique, tmp_path):
    """Create a namespace with its service account, and an Airflow connection of the same name."""
    created = Team(admin, unique, tmp_path)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(created.kubeconfig(plane_proxy.url)))
    extra = json.dumps({"kube_config_path": str(kubeconfig), "namespace": unique})
    body = {"connection_id": unique, "conn_type": "kubernetes", "extra": extra}
    airflow.request("POST", "/api/v2/connections", body)
    return created


@pytest.fixture
def run(airflow, admin, team, tmp_path):
    """Start a run whose two tasks wait for their TrainJobs in the namespace."""
    run = airflow.start_run("team", go=str(tmp_path), connection=team.namespace)

    def is_waiting():
        """Return whether both tasks watch their TrainJobs: before that, 401 fails them at once."""
        return all(logs_running(airflow, run, task) for task in TASKS) and list_states(airflow, run) == WAITING

    wait_for_airflow(is_waiting, 150)
    yield run
    (tmp_path / "task").touch()


def logs_running(airflow, run, task):
    """Return whether the log of the task has the phase `Running` of its TrainJob."""
    log = airflow.request("GET", f"{run}/taskInstances/{task}/logs/1?full_content=true") or {"content": []}
    return any("Running [node]" in line["event"] for line in log["content"])


def list_states(airflow, run):
    return [airflow.get_state(run, task) for task in TASKS]


def test_tasks_succeed_after_their_token_was_revoked_for_40_seconds(
    airflow, admin, plane_proxy, team, run, tmp_path, record_case
):
    team.revoke_token()
    began = time.monotonic()
    plane_proxy.disconnect()  # watches that are open survive the revocation
    plane_proxy.start_listening()
    (tmp_path / "task").touch()
    wait_for_airflow(lambda: all(map(is_finished, admin.list("TrainJob", team.namespace))), 30)
    wait_for_airflow(lambda: time.monotonic() - began >= 40, 60)
    assert list_states(airflow, run) == WAITING  # nothing has reported the end of the TrainJobs
    team.renew_token()
    renewed_at = time.monotonic()
    wait_for_airflow(lambda: airflow.get_state(run) in ("success", "failed"), 120)
    assert list_states(airflow, run) == ["success", "success"]
    tries = [airflow.request("GET", f"{run}/taskInstances/{task}")["try_number"] for task in TASKS]
    assert tries == [1, 1]
    assert len(admin.list("TrainJob", team.namespace)) == len(TASKS)
    seconds = time.monotonic() - renewed_at
    record_case("token revoked 40 s (real API server)", f"success in try 1, {seconds:.1f} s after the new token")


def test_tasks_fail_when_their_namespace_is_deleted(airflow, admin, team, run, record_case):
    admin.delete("Namespace", None, team.namespace)
    deleted_at = time.monotonic()
    wait_for_airflow(lambda: list_states(airflow, run) == ["failed", "failed"], 120)
    record_case("namespace deleted (real API server)", f"both tasks failed after {time.monotonic() - deleted_at:.1f} s")
