"""Service accounts that have only what manifests/ gives them: what they can do, and that they can do nothing else."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest

from tests.support import shipped_manifests
from tests.support.accounts import is_allowed, kubeconfig_with_token
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import IMAGE, counters, list_pods, shell
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.errors import PermissionDenied
from trainjob.lifecycle import Limits, Listener, cancel, set_suspended, submit, wait
from trainjob.retention import sweep

EACH = pytest.mark.parametrize("manifest", ["airflow", "kfp", "person"], indirect=True)
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
GROUP = "trainer.kubeflow.org"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
UNRELATED_RESOURCES = [
    ("", "secrets"),
    ("", "configmaps"),
    ("", "serviceaccounts"),
    ("", "serviceaccounts/token"),
    ("", "pods/exec"),
    ("", "nodes"),
    ("", "namespaces"),
    ("", "persistentvolumeclaims"),
    ("batch", "jobs"),
    ("jobset.x-k8s.io", "jobsets"),
    (GROUP, "trainjobs/status"),
    (GROUP, "clustertrainingruntimes"),
    ("rbac.authorization.k8s.io", "roles"),
    ("rbac.authorization.k8s.io", "rolebindings"),
]


@pytest.fixture
def manifest(request):
    """Airflow's, which has the most rights, unless a test asks for others."""
    return getattr(request, "param", "airflow")


@pytest.fixture
def restricted_token(client, namespace, manifest):
    """Of a service account with its Roles, once its rights are in force."""
    return shipped_manifests.create_restricted_token(client, namespace, manifest)


@pytest.fixture
def restricted_client(client, restricted_token):
    """The unmodified client as that account."""
    with closing(client.with_token(restricted_token)) as opened:
        yield opened


@pytest.fixture
def cluster(target, namespace, restricted_token):
    """Return the project's own client as that account."""
    opened = Cluster(
        Connection(kubeconfig_json=kubeconfig_with_token(target.kubeconfig, restricted_token, namespace)),
        retry_seconds=5.0,
    )
    yield opened
    opened.close()


def test_each_right(client, namespace, restricted_client):
    """Every request that a step's engine makes is allowed."""
    jobs, job = path_of("TrainJob", namespace), path_of("TrainJob", namespace, "job")
    assert restricted_client.request("POST", jobs, shell("echo hello; sleep 60"), fieldValidation="Strict").code == 201
    restricted_client.wait_for("TrainJob", namespace, "job", lambda found: counters(found).get("node", {}).get("ready"))
    (pod,) = list_pods(restricted_client, namespace)
    claims = path_of("PersistentVolumeClaim", namespace)
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "w"}, "spec": CLAIM}
    answers = [
        restricted_client.request("GET", jobs),
        restricted_client.request("GET", job),
        restricted_client.request("GET", path_of("Pod", namespace, pod["metadata"]["name"], "log")),
        restricted_client.request("GET", path_of("Event", namespace)),
        restricted_client.request("GET", path_of("TrainingRuntime", namespace)),
        restricted_client.request("POST", claims, body),
        restricted_client.request("GET", f"{claims}/w"),
        restricted_client.request("DELETE", f"{claims}/w"),
        restricted_client.request("PATCH", job, {"spec": {"suspend": True}}),
        restricted_client.request("DELETE", job, {"propagationPolicy": "Foreground"}),
    ]
    assert [answer.code for answer in answers] == [200] * 5 + [201] + [200] * 4


@EACH
def test_nothing_else(namespace, restricted_client, manifest):
    """Everything else is refused: other kinds, other verbs, other namespaces."""
    granted = shipped_manifests.granted_rights(manifest)
    known = {(group, resource) for group, resource, _ in granted}
    asked = [(group, resource, verb) for group, resource in [*sorted(known), *UNRELATED_RESOURCES] for verb in VERBS]
    assert {one for one in asked if is_allowed(restricted_client, namespace, one[2], *one[:2])} == granted
    assert not any(is_allowed(restricted_client, "default", verb, group, resource) for group, resource, verb in granted)
    user, where = f'User "system:serviceaccount:{namespace}:robot"', f'in the namespace "{namespace}"'
    ours = f'API group "{GROUP}"'
    rows = [
        ("GET", "Secret", "", f'secrets is forbidden: {user} cannot list resource "secrets" in API group ""'),
        ("DELETE", "Pod", "x", f'pods "x" is forbidden: {user} cannot delete resource "pods" in API group ""'),
        (
            "PUT",
            "TrainJob",
            "x",
            f'trainjobs.{GROUP} "x" is forbidden: {user} cannot update resource "trainjobs" in {ours}',
        ),
    ]
    for method, kind, name, text in rows:
        answer = restricted_client.request(method, path_of(kind, namespace, name))
        assert (answer.code, answer.message) == (403, f"{text} {where}")


def script_job(script):
    return TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=["sh", "-c", script]))


@EACH
def test_engine_from_submit_to_cancel(cluster, unique):
    """Submit, wait with logs, adopt and cancel work with this Role."""
    key, lines = RunKey("conformance", "role", unique, "run-1"), []
    reference = submit(cluster, script_job("echo hello"), key)
    assert wait(cluster, reference, listener=Listener(on_log=lines.append)).succeeded
    assert [str(line) for line in lines] == ["[node-0] hello"]
    assert submit(cluster, script_job("echo hello"), key).adopted
    assert cancel(cluster, reference)


def test_engine_explains_a_failure(cluster, unique):
    """A failure is told with its exit code and last lines with this Role."""
    reference = submit(cluster, script_job("echo why >&2; exit 3"), RunKey("conformance", "role", unique, "run-1"))
    outcome = wait(cluster, reference, limits=Limits(max_restarts=0))
    assert (outcome.exit_code, outcome.log_tail) == (3, ("why",))


def test_engine_pauses(cluster, namespace, unique):
    """Suspending works with this Role."""
    reference = submit(cluster, script_job("sleep 60"), RunKey("conformance", "role", unique, "run-1"))
    assert set_suspended(cluster, reference.name, namespace, suspended=True)
    assert cluster.get_trainjob(reference.name, namespace)["spec"]["suspend"] is True


def test_engine_sweeps(cluster, unique):
    """What has ended, and what nobody waits for any more, is swept with this Role."""
    for script in ("true", "sleep 60"):
        reference = submit(
            cluster, script_job(script), RunKey("conformance", "role", f"{unique}-{len(script)}", "run-1")
        )
        if script == "true":
            assert wait(cluster, reference).succeeded
    swept = sweep(cluster, finished_for=timedelta(0), active_for=timedelta(0), has_ended=lambda _: True)
    assert [one.action for one in swept] == ["deleted", "deleted"]


def test_engine_makes_a_workspace(cluster, namespace):
    """A workspace claim is made and removed with this Role."""
    cluster.create_claim({"metadata": {"name": "w", "namespace": namespace}, "spec": CLAIM})
    claim = cluster.get_claim("w", namespace)
    assert cluster.delete_claim("w", namespace, claim["metadata"]["uid"])


def test_engine_elsewhere(cluster, unique):
    """In a namespace where it has no Role the engine is refused, and says so as a missing permission."""
    with pytest.raises(PermissionDenied, match='in the namespace "default"'):
        submit(cluster, script_job("true"), RunKey("conformance", "role", unique, "run-1"), namespace="default")
