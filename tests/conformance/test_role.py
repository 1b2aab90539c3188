"""Service accounts that have only what manifests/ gives them: what they can do, and that they can do nothing else."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest

from tests.support import shipped_manifests
from tests.support.accounts import kubeconfig_of, may
from tests.support.kubernetes_client import path_of
from tests.support.trainjobs import IMAGE, counters, pods_of, shell
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.errors import PermissionDenied
from trainjob.lifecycle import Limits, Listener, cancel, set_suspended, submit, wait
from trainjob.retention import sweep

EACH = pytest.mark.parametrize("manifest", ["airflow", "kfp", "person"], indirect=True)
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
GROUP = "trainer.kubeflow.org"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
OTHERS = [
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
def token(client, namespace, manifest):
    """Of a service account with its Roles, once its rights are in force."""
    return shipped_manifests.token(client, namespace, manifest)


@pytest.fixture
def robot(client, token):
    """The unmodified client as that account."""
    with closing(client.as_bearer(token)) as opened:
        yield opened


@pytest.fixture
def engine(target, namespace, token):
    """Return the project's own client as that account."""
    opened = Cluster(Connection(kubeconfig_json=kubeconfig_of(target.kubeconfig, token, namespace)), patience=5.0)
    yield opened
    opened.close()


def test_each_right(client, namespace, robot):
    """Every request that a step's engine makes is allowed."""
    jobs, job = path_of("TrainJob", namespace), path_of("TrainJob", namespace, "job")
    assert robot.ask("POST", jobs, shell("echo hello; sleep 60"), fieldValidation="Strict").code == 201
    robot.until("TrainJob", namespace, "job", lambda found: counters(found).get("node", {}).get("ready"))
    (pod,) = pods_of(robot, namespace)
    claims = path_of("PersistentVolumeClaim", namespace)
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "w"}, "spec": CLAIM}
    answers = [
        robot.ask("GET", jobs),
        robot.ask("GET", job),
        robot.ask("GET", path_of("Pod", namespace, pod["metadata"]["name"], "log")),
        robot.ask("GET", path_of("Event", namespace)),
        robot.ask("GET", path_of("TrainingRuntime", namespace)),
        robot.ask("POST", claims, body),
        robot.ask("GET", f"{claims}/w"),
        robot.ask("DELETE", f"{claims}/w"),
        robot.ask("PATCH", job, {"spec": {"suspend": True}}),
        robot.ask("DELETE", job, {"propagationPolicy": "Foreground"}),
    ]
    assert [answer.code for answer in answers] == [200] * 5 + [201] + [200] * 4


@EACH
def test_nothing_else(namespace, robot, manifest):
    """Everything else is refused: other kinds, other verbs, other namespaces."""
    granted = shipped_manifests.rights(manifest)
    known = {(group, resource) for group, resource, _ in granted}
    asked = [(group, resource, verb) for group, resource in [*sorted(known), *OTHERS] for verb in VERBS]
    assert {one for one in asked if may(robot, namespace, one[2], *one[:2])} == granted
    assert not any(may(robot, "default", verb, group, resource) for group, resource, verb in granted)
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
        answer = robot.ask(method, path_of(kind, namespace, name))
        assert (answer.code, answer.message) == (403, f"{text} {where}")


def echo(script):
    return TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=["sh", "-c", script]))


@EACH
def test_engine_from_submit_to_cancel(engine, unique):
    """Submit, wait with logs, adopt and cancel work with this Role."""
    key, lines = RunKey("conformance", "role", unique, "run-1"), []
    reference = submit(engine, echo("echo hello"), key)
    assert wait(engine, reference, listener=Listener(on_log=lines.append)).succeeded
    assert [str(line) for line in lines] == ["[node-0] hello"]
    assert submit(engine, echo("echo hello"), key).adopted
    assert cancel(engine, reference)


def test_engine_explains_a_failure(engine, unique):
    """A failure is told with its exit code and last lines with this Role."""
    reference = submit(engine, echo("echo why >&2; exit 3"), RunKey("conformance", "role", unique, "run-1"))
    outcome = wait(engine, reference, limits=Limits(max_restarts=0))
    assert (outcome.exit_code, outcome.log_tail) == (3, ("why",))


def test_engine_pauses(engine, namespace, unique):
    """Suspending works with this Role."""
    reference = submit(engine, echo("sleep 60"), RunKey("conformance", "role", unique, "run-1"))
    assert set_suspended(engine, reference.name, namespace, suspended=True)
    assert engine.get_trainjob(reference.name, namespace)["spec"]["suspend"] is True


def test_engine_sweeps(engine, unique):
    """What has ended, and what nobody waits for any more, is swept with this Role."""
    for script in ("true", "sleep 60"):
        reference = submit(engine, echo(script), RunKey("conformance", "role", f"{unique}-{len(script)}", "run-1"))
        if script == "true":
            assert wait(engine, reference).succeeded
    swept = sweep(engine, finished_for=timedelta(0), at_work_for=timedelta(0), is_over=lambda _: True)
    assert [one.done for one in swept] == ["deleted", "deleted"]


def test_engine_makes_a_workspace(engine, namespace):
    """A workspace claim is made and removed with this Role."""
    engine.create_claim({"metadata": {"name": "w", "namespace": namespace}, "spec": CLAIM})
    claim = engine.get_claim("w", namespace)
    assert engine.delete_claim("w", namespace, claim["metadata"]["uid"])


def test_engine_elsewhere(engine, unique):
    """In a namespace where it has no Role the engine is refused, and says so as a missing permission."""
    with pytest.raises(PermissionDenied, match='in the namespace "default"'):
        submit(engine, echo("true"), RunKey("conformance", "role", unique, "run-1"), namespace="default")
