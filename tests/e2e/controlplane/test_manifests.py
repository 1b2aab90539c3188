"""The manifests on an API server with an audit log: all that they grant is used, and nothing else is needed."""

from __future__ import annotations

import json
import os
import subprocess
from contextlib import closing
from datetime import timedelta

import pytest
import yaml

from control_plane import ControlPlane
from programs import SUPERVISOR
from tests.e2e.controlplane.queues import create_queue, create_shared_objects
from tests.support import shipped_manifests
from tests.support.accounts import kubeconfig_with_token
from tests.support.kserve_controller import KServeController
from tests.support.kubernetes_client import Client
from tests.support.polling import wait_until
from tests.support.promotions import ACCOUNT, Promoter
from tests.support.trainjobs import JOBSET, shell, train_job
from trainjob import CustomTrainerContainer, Queue, RunKey, Runtime, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.client.resources import Resource
from trainjob.errors import InvalidSpec, WaitTimeout
from trainjob.lifecycle import Limits, Listener, cancel, set_suspended, submit, wait
from trainjob.lifecycle.code_changes import ChangesPublisher
from trainjob.manifest.code import changes_name
from trainjob.project_code.changes import CodeChanges
from trainjob.retention import sweep
from trainjob.spec.job import STOCK_RUNTIME

IMAGE = "busybox"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
ALL = ("airflow", "cluster", "code", "dev", "kfp", "network-policy", "person", "promotion", "runtimes", "steps")
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
# Permissions of every authenticated user: the ClusterRole system:basic-user, and the Role for the Trainer's version.
COMMON_PERMISSIONS = {
    ("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
    ("authentication.k8s.io", "selfsubjectreviews", "create"),
    ("", "configmaps", "get"),
}


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """Start a control plane, and return it with the path of its audit log."""
    if reason := ControlPlane.unavailable_reason(kueue=True, kserve=True):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("audited")
    policy, log = folder / "policy.yaml", folder / "audit.jsonl"
    policy.write_text(yaml.safe_dump(POLICY))
    arguments = [f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=blocking-strict"]
    with ControlPlane(folder / "state", apiserver_args=arguments, kueue=True, kserve=True) as cluster:
        yield cluster, log


@pytest.fixture(scope="module")
def admin(plane):
    with closing(Client.from_kubeconfig(str(plane[0].kubeconfig))) as client:
        create_shared_objects(client)
        yield client


@pytest.fixture
def namespace(admin, unique):
    admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}}, "")
    yield unique
    admin.request("DELETE", f"/api/v1/namespaces/{unique}")


def creation_path(found, namespace):
    """Return the path for the creation of an object."""
    group = found["apiVersion"]
    plural = f"{found['kind'].lower().removesuffix('y')}{'ies' if found['kind'].endswith('y') else 's'}"
    where = "" if found["kind"].startswith("Cluster") else f"namespaces/{namespace}/"
    return f"/{'apis' if '/' in group else 'api'}/{group}/{where}{plural}"


def kustomize(folder):
    built = subprocess.run([SUPERVISOR.folder / "controlplane", "build", folder], capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    return list(yaml.safe_load_all(built.stdout))


@pytest.mark.parametrize("name", ALL)
def test_each_manifest_is_accepted(admin, namespace, name):
    """The real kustomize builds each manifest, and the real API server accepts every object with Strict."""
    objects = kustomize(shipped_manifests.MANIFESTS / name)
    assert sorted(objects, key=repr) == sorted(shipped_manifests.load_objects(name), key=repr)
    for found in objects:
        answer = admin.request("POST", creation_path(found, namespace), found, dryRun="All", fieldValidation="Strict")
        assert answer.code == 201, answer.message


def test_the_documented_kustomization(plane, tmp_path, pytestconfig):
    """The kustomization in docs/how-to/platform.md binds another account, in another namespace."""
    page = (pytestconfig.rootpath / "docs" / "how-to" / "platform.md").read_text()
    shown = page.partition("```yaml\n")[2].partition("```")[0]
    base = os.path.relpath(shipped_manifests.MANIFESTS / "airflow", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(shown.replace("trainjob/manifests/airflow", base))
    objects = kustomize(tmp_path)
    assert {found["metadata"]["namespace"] for found in objects} == {"team"}
    bound = [found["subjects"] for found in objects if found["kind"] == "RoleBinding"]
    assert bound == [[{"kind": "ServiceAccount", "name": "worker", "namespace": "etl"}]] * 2


def test_all_folders_are_tested():
    found = {path.parent.name for path in shipped_manifests.MANIFESTS.glob("*/kustomization.yaml")}
    other = {"grafana"}  # a dashboard and a mapping, which tests/integration/airflow/test_metrics_page.py checks
    assert found == set(ALL)
    assert {path.name for path in shipped_manifests.MANIFESTS.iterdir() if path.is_dir()} == found | other


def test_the_network_policy_selects_the_pods_of_trainjobs(admin, namespace):
    """Other pods are not selected. Enforcement needs a network plugin, which this control plane does not have."""
    (policy,) = shipped_manifests.load_objects("network-policy")
    admin.request("POST", creation_path(policy, namespace), policy)
    (expression,) = policy["spec"]["podSelector"]["matchExpressions"]
    assert expression == {"key": JOBSET, "operator": "Exists"}
    container = {"name": "c", "image": IMAGE, "command": ["true"]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other"}, "spec": {"containers": [container]}}
    admin.create(pod, namespace)
    admin.create(shell("true", name="plain"), namespace)
    torchtune = {"runtime": "torchtune-llama3.2-1b", "initializer": {"dataset": {"storageUri": "hf://a/b"}}}
    admin.create(train_job(name="tuned", **torchtune), namespace)
    expected = {"plain-node", "tuned-dataset-initializer", "tuned-model-initializer"}
    wait_until(
        lambda: expected <= {pod["metadata"]["name"].rsplit("-", 3)[0] for pod in list_pods(admin, namespace, JOBSET)}
    )
    assert "other" not in {pod["metadata"]["name"] for pod in list_pods(admin, namespace, JOBSET)}


def list_pods(client, namespace, selector):
    return client.list("Pod", namespace, labelSelector=selector)


# -- used permissions --------------------------------------------------------------------------------------------------


def audited_requests(log, namespace, since, account="robot"):
    """Return the requests of the account since a time, from the audit log.

    Each one is (group, resource, verb, whether it was allowed, path).
    """
    found = set()
    for line in log.read_text().splitlines():
        event = json.loads(line)
        if (
            event["user"]["username"] != f"system:serviceaccount:{namespace}:{account}"
            or event["stageTimestamp"] <= since
        ):
            continue
        about = event.get("objectRef") or {}
        resource = "/".join(part for part in (about.get("resource", ""), about.get("subresource", "")) if part)
        allowed = event["annotations"]["authorization.k8s.io/decision"] == "allow"
        found.add((about.get("apiGroup", ""), resource, event["verb"], allowed, event["requestURI"].partition("?")[0]))
    return found


def script_job(script, cpus=None, **fields):
    resources = {"resources_per_node": {"cpu": cpus}} if cpus else {}
    return TrainJob(trainer=CustomTrainerContainer(image=IMAGE, command=["sh", "-c", script], **resources), **fields)


def key(task):
    return RunKey("security", "audit", task, "run-1")


def use_steps(cluster_client, namespace):
    """Use the permissions that every step needs, and return the successful job."""
    lines = []
    done = submit(
        cluster_client, script_job("echo hello", runtime=Runtime(name="own", kind="TrainingRuntime")), key("done")
    )
    assert wait(cluster_client, done, listener=Listener(on_log=lines.append)).succeeded
    assert [str(line) for line in lines] == ["[node-0] hello"]
    again = submit(
        cluster_client, script_job("echo hello", runtime=Runtime(name="own", kind="TrainingRuntime")), key("done")
    )
    assert (again.name, again.adopted) == (done.name, True)
    failed = submit(cluster_client, script_job("echo why >&2; exit 3"), key("failed"))
    assert wait(cluster_client, failed, limits=Limits(max_restarts=0)).exit_code == 3
    with pytest.raises(InvalidSpec, match="no such TrainingRuntime"):
        submit(cluster_client, script_job("true", runtime=Runtime(name="nope", kind="TrainingRuntime")), key("nope"))
    paused = submit(cluster_client, script_job("sleep 60", runtime="jax-distributed"), key("paused"))
    wait_until(lambda: cluster_client.list_pods(paused.name, namespace))
    assert set_suspended(cluster_client, paused.name, namespace, suspended=True)
    assert set_suspended(cluster_client, paused.name, namespace, suspended=False)
    assert not cancel(cluster_client, paused).had_finished
    queued = submit(cluster_client, script_job("true", cpus=1, queue=Queue(name="full")), key("queued"))
    with pytest.raises(WaitTimeout, match="couldn't assign flavors"):
        wait(cluster_client, queued, limits=Limits(queued=timedelta(seconds=2)))
    return done


def use_airflow(cluster, done):
    """Use the permissions for a workspace's claim and for a sweep."""
    namespace = done.namespace
    cluster.create_claim({"metadata": {"name": "w", "namespace": namespace}, "spec": CLAIM})
    claim = cluster.get_claim("w", namespace)
    assert cluster.delete_claim("w", namespace, claim["metadata"]["uid"])
    assert sweep(cluster, namespace=namespace, finished_for=timedelta(0))


def use_launcher(cluster, done):
    """Get a pod, a Workflow and a ConfigMap, as the launcher does."""
    (pod,) = cluster.list_pods(done.name, done.namespace)
    assert cluster.get_pod(pod["metadata"]["name"], done.namespace)
    assert cluster.get_object(Resource("workflows", "/apis/argoproj.io/v1alpha1", ""), "run", done.namespace) is None
    assert cluster.get_object(Resource("configmaps", "/api/v1", ""), "kfp-launcher", done.namespace) is None


def use_command_line(cluster, done):
    """Use the permissions for `trainjob check` and `trainjob sweep`."""
    assert cluster.inspect_platform(done.namespace, STOCK_RUNTIME).denied_permissions == []
    assert sweep(cluster, namespace=done.namespace, finished_for=timedelta(0))


def copy_stock_runtime(admin):
    """Return a TrainingRuntime with the spec of the stock runtime."""
    stock = admin.get("ClusterTrainingRuntime", None, "torch-distributed")
    return {**stock, "kind": "TrainingRuntime", "metadata": {"name": "own", "labels": stock["metadata"]["labels"]}}


@pytest.fixture
def restricted_connection(plane, admin, namespace, request):
    """Return the connection of an account with only a manifest's permissions.

    It also has those of manifests/cluster.
    """
    for found in shipped_manifests.load_objects("cluster"):
        admin.request("POST", creation_path(found, ""), found)
    admin.create(copy_stock_runtime(admin), namespace)
    create_queue(admin, namespace, "full", cpus=0)
    token = shipped_manifests.create_restricted_token(admin, namespace, request.param)
    return Connection(kubeconfig_text=kubeconfig_with_token(str(plane[0].kubeconfig), token, namespace))


USES = {"airflow": use_airflow, "kfp": use_launcher, "person": use_command_line}


@pytest.mark.parametrize(
    ("name", "restricted_connection"), [(name, name) for name in USES], indirect=["restricted_connection"], ids=USES
)
def test_granted_permissions_are_the_used_ones(plane, restricted_connection, namespace, name, evidence):
    log = plane[1]
    began = max((json.loads(line)["stageTimestamp"] for line in log.read_text().splitlines()), default="")
    with closing(Cluster(restricted_connection, retry_seconds=20.0)) as cluster:
        USES[name](cluster, use_steps(cluster, namespace))
    found = audited_requests(log, namespace, began)
    granted, for_all = (
        shipped_manifests.granted_permissions(name),
        shipped_manifests.granted_permissions("cluster", "ClusterRole"),
    )
    used = {(group, resource, verb) for group, resource, verb, _, _ in found if resource}
    used -= COMMON_PERMISSIONS - granted
    assert granted <= used <= granted | for_all
    assert name != "person" or used == granted | for_all
    assert {one for one in found if not one[3]} == set()
    # What every authenticated user may read (ClusterRoles system:discovery and system:public-info-viewer).
    assert {path.split("/")[1] for _, resource, _, _, path in found if not resource} <= {"openapi", "apis", "version"}
    others, refused = len(used - granted - for_all), sum(not one[3] for one in found)
    result = f"{len(used & granted)} verbs used of {len(granted)} granted, others {others}, refused {refused}"
    evidence("security", check=f"manifests/{name} against the audit log of kube-apiserver 1.36", result=result)


def claim_name(admin, namespace, name):
    """Create the ConfigMap that a deleted TrainJob would have left."""
    admin.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}, namespace)


def use_code(cluster, admin, namespace, request):
    """Run a project, one whose ConfigMap exists, and a sweep."""
    for number in range(2):
        reference = submit(cluster, request, RunKey("test", "code", "train", str(number)), namespace=namespace)
        wait(cluster, reference).raise_for_failure()
        cancel(cluster, reference, ignore_end=True)
        admin.wait_until_deleted("ConfigMap", namespace, f"{reference.name}-code")
        claim_name(admin, namespace, f"{reference.name}-code")
        again = submit(cluster, request, RunKey("test", "code", "train", str(number)), namespace=namespace)
        wait(cluster, again).raise_for_failure()
    sweep(cluster, namespace=namespace)


def use_dev(cluster, admin, namespace, request):
    """Send two changes to a TrainJob that runs, as `trainjob dev` does."""
    trainer = request.trainer.model_copy(update={"command": ("sleep", "600")})
    key = RunKey("test", "dev", "train", "1")
    reference = submit(cluster, request.model_copy(update={"trainer": trainer}), key, namespace=namespace)
    wait_until(lambda: admin.list("Pod", namespace))
    claim_name(admin, namespace, changes_name(reference.name))
    publisher = ChangesPublisher(cluster, reference, print)
    for number in range(2):
        publisher.publish(CodeChanges(str(number) * 64, b"archive", (), is_empty=False))
    cancel(cluster, reference)


@pytest.mark.parametrize(("name", "use"), [("code", use_code), ("dev", use_dev)])
def test_the_permissions_of_projects_are_the_used_ones(plane, admin, namespace, tmp_path, name, use):
    control_plane, log = plane
    token = shipped_manifests.create_restricted_token(admin, namespace, "person")
    shipped_manifests.apply_roles(admin, namespace, name, "robot")
    (tmp_path / "train.py").write_text("print('done')\n")
    trainer = CustomTrainerContainer(image=IMAGE, command=["python3", "train.py"], code=str(tmp_path), num_nodes=1)
    connection = Connection(kubeconfig_text=kubeconfig_with_token(str(control_plane.kubeconfig), token, namespace))
    with closing(Cluster(connection, retry_seconds=20.0)) as cluster:
        use(cluster, admin, namespace, TrainJob(trainer=trainer))
    found = audited_requests(log, namespace, "")
    granted, of_person = (shipped_manifests.granted_permissions(each) for each in (name, "person"))
    used = {(group, resource, verb) for group, resource, verb, _, _ in found if resource}
    assert used >= granted
    assert used <= granted | of_person | COMMON_PERMISSIONS
    assert {one for one in found if not one[3]} == set()


def promote_a_held_model(promoter, kserve, kind, name):
    """Run a promotion of a model whose loading takes a while, and its rollback."""
    place = {"kind": kind, "service": name}
    kserve.hold("s3://models/b")
    promoting = promoter.start("promote", name, model="s3://models/b", **place)
    assert any("waiting for" in line for line in promoting.stdout)
    kserve.release("s3://models/b")
    output, _ = promoting.communicate()
    assert promoting.returncode == 0, output
    promoter.result("rollback", f"undo-{name}", any_run=True, **place)


def test_the_permissions_of_promotions_are_the_used_ones(plane, admin, namespace, tmp_path):
    cluster, log = plane
    model = {"modelFormat": {"name": "huggingface"}, "storageUri": "s3://models/a"}
    llm = {"model": {"uri": "s3://models/a"}, "router": {"route": {}, "gateway": {}}}
    raw = {"annotations": {"serving.kserve.io/deploymentMode": "RawDeployment"}}
    services = (
        ("InferenceService", "v1beta1", "knative", {}, {"predictor": {"model": model}}),
        ("InferenceService", "v1beta1", "plain", raw, {"predictor": {"model": model}}),
        ("LLMInferenceService", "v1alpha1", "llm", {}, llm),
    )
    promoter = Promoter(admin, namespace, tmp_path).prepare()
    with KServeController(cluster.kubeconfig, namespace) as kserve:
        for kind, version, name, meta, spec in services:
            group = f"serving.kserve.io/{version}"
            admin.create(
                {"apiVersion": group, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}, namespace
            )
            kserve.wait_until_served(name, {"s3://models/a": 100}, kind)
            promote_a_held_model(promoter, kserve, kind, name)
    found = audited_requests(log, namespace, "", ACCOUNT)
    used = {(group, resource, verb) for group, resource, verb, _, _ in found}
    # An LLMInferenceService is watched only in the moment between its Deployment's and its own readiness.
    seldom = {("serving.kserve.io", "llminferenceservices", "watch")}
    assert used | seldom == shipped_manifests.granted_permissions("promotion")
    assert {one for one in found if not one[3]} == set()
