"""Service accounts with only the Roles of manifests/: what they can do, and that they can do nothing else."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta, timezone

import pytest

from tests.support import shipped_manifests
from tests.support.accounts import is_allowed, kubeconfig_with_token
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import IMAGE, counters, list_pods, shell
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.errors import PermissionDenied
from trainjob.inspection.check import check_namespace
from trainjob.lifecycle import Limits, Listener, cancel, set_suspended, submit, wait
from trainjob.retention import sweep
from trainjob.spec.job import STOCK_RUNTIME

EACH_MANIFEST = pytest.mark.parametrize("manifest", ["airflow", "kfp", "person"], indirect=True)
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
    """Return the manifest of the test; by default Airflow's, which has most permissions."""
    return getattr(request, "param", "airflow")


@pytest.fixture
def restricted_token(client, namespace, manifest):
    """Return the token of a service account whose Roles are in force."""
    return shipped_manifests.create_restricted_token(client, namespace, manifest)


@pytest.fixture
def restricted_client(client, restricted_token):
    """Return the unmodified Kubernetes client of that account."""
    with closing(client.with_token(restricted_token)) as opened:
        yield opened


@pytest.fixture
def cluster(target, namespace, restricted_token):
    """Return the project's own client as that account."""
    opened = Cluster(
        Connection(kubeconfig_text=kubeconfig_with_token(target.kubeconfig, restricted_token, namespace)),
        retry_seconds=5.0,
    )
    yield opened
    opened.close()


def test_every_request_of_the_engine_is_allowed(client, namespace, restricted_client):
    """The shipped Roles allow every request that the engine of a step sends."""
    jobs, job = path_of("TrainJob", namespace), path_of("TrainJob", namespace, "job")
    assert restricted_client.request("POST", jobs, shell("echo hello; sleep 60"), fieldValidation="Strict").code == 201
    restricted_client.wait_for("TrainJob", namespace, "job", lambda found: counters(found).get("node", {}).get("ready"))
    (pod,) = list_pods(restricted_client, namespace)
    claims = path_of("PersistentVolumeClaim", namespace)
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "w"}, "spec": CLAIM}
    responses = [
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
    assert [response.code for response in responses] == [200] * 5 + [201] + [200] * 4


@EACH_MANIFEST
def test_everything_else_is_forbidden(namespace, restricted_client, manifest):
    """The shipped Roles allow no other kinds, verbs and namespaces."""
    granted = shipped_manifests.granted_permissions(manifest)
    known = {(group, resource) for group, resource, _ in granted}
    pairs = [*sorted(known), *UNRELATED_RESOURCES]
    permissions = [(group, resource, verb) for group, resource in pairs for verb in VERBS]
    names = shipped_manifests.list_object_names(manifest)
    allowed = {one for one in permissions if is_allowed(restricted_client, namespace, one[2], *one[:2])}
    assert allowed == granted - names.keys()
    assert all(is_allowed(restricted_client, namespace, one[2], *one[:2], name) for one, name in names.items())
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
        response = restricted_client.request(method, path_of(kind, namespace, name))
        assert (response.code, response.message) == (403, f"{text} {where}")


def script_job(script):
    return TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=["sh", "-c", script]))


@EACH_MANIFEST
def test_submission_to_cancellation(cluster, unique):
    """Submission, wait with logs, adoption and cancellation work with the shipped Roles."""
    key, lines = RunKey("conformance", "role", unique, "run-1"), []
    reference = submit(cluster, script_job("echo hello"), key)
    assert wait(cluster, reference, listener=Listener(on_log=lines.append)).succeeded
    assert [str(line) for line in lines] == ["[node-0] hello"]
    assert submit(cluster, script_job("echo hello"), key).adopted
    running = submit(cluster, script_job("sleep 600"), RunKey("conformance", "role", unique, "run-2"))
    assert not cancel(cluster, running).had_finished


@pytest.mark.parametrize("manifest", ["person"], indirect=True)
@pytest.mark.only("controlplane")  # the laptop cluster has no ResourceQuotas and LimitRanges
def test_check_of_a_namespace(client, cluster, namespace):
    """`trainjob check` reads sidecars, Pod Security, quotas and limits of its own namespace with the shipped Roles."""
    labels = {"istio-injection": "enabled", "pod-security.kubernetes.io/enforce": "restricted"}
    client.patch("Namespace", None, namespace, {"metadata": {"labels": labels}})
    limits = [{"type": "Container", "max": {"memory": "8Gi"}}]
    client.create(
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": limits}}, namespace
    )
    hard = {"limits.cpu": "8", "limits.memory": "64Gi"}
    client.create(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}, namespace
    )
    rows = check_namespace(cluster.inspect_platform(namespace, STOCK_RUNTIME), datetime.now(timezone.utc))
    found = {row.name: (row.grade.value, row.text) for row in rows}
    assert {name: found[name][0] for name in ("sidecars", "pod security", "quotas", "limits")} == dict.fromkeys(
        ("sidecars", "pod security", "quotas", "limits"), "warning"
    )
    assert "istio-injection=enabled" in found["sidecars"][1]
    assert "(q: limits.cpu)" in found["quotas"][1]
    # The API server completes the LimitRange with the defaults that follow from its maximum.
    assert "Container by default at most memory: 8Gi; Container at most memory: 8Gi" in found["limits"][1]


def test_failure_report(cluster, unique):
    """A failure is reported with its exit code and last lines with the shipped Roles."""
    reference = submit(cluster, script_job("echo why >&2; exit 3"), RunKey("conformance", "role", unique, "run-1"))
    outcome = wait(cluster, reference, limits=Limits(max_restarts=0))
    assert (outcome.exit_code, outcome.log_tail) == (3, ("why",))


def test_suspension(cluster, namespace, unique):
    """Suspension works with the shipped Roles."""
    reference = submit(cluster, script_job("sleep 60"), RunKey("conformance", "role", unique, "run-1"))
    assert set_suspended(cluster, reference.name, namespace, suspended=True)
    assert cluster.get_trainjob(reference.name, namespace)["spec"]["suspend"] is True


def test_sweep(cluster, unique):
    """A sweep deletes finished and abandoned jobs with the shipped Roles."""
    for script in ("true", "sleep 60"):
        reference = submit(
            cluster, script_job(script), RunKey("conformance", "role", f"{unique}-{len(script)}", "run-1")
        )
        if script == "true":
            assert wait(cluster, reference).succeeded
    swept = sweep(cluster, finished_for=timedelta(0), active_for=timedelta(0), has_ended=lambda _: True)
    assert [one.action for one in swept] == ["deleted", "deleted"]


def test_workspace_claim(cluster, namespace):
    """A workspace claim can be created and deleted with the shipped Roles."""
    cluster.create_claim({"metadata": {"name": "w", "namespace": namespace}, "spec": CLAIM})
    claim = cluster.get_claim("w", namespace)
    assert cluster.delete_claim("w", namespace, claim["metadata"]["uid"])


def test_other_namespace(cluster, unique):
    """Without a Role in a namespace, the engine raises PermissionDenied."""
    with pytest.raises(PermissionDenied, match='in the namespace "default"'):
        submit(cluster, script_job("true"), RunKey("conformance", "role", unique, "run-1"), namespace="default")
