"""`trainjob check` on real control planes with missing, stopped, forbidden or old parts."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from contextlib import closing

import pytest
import yaml

from control_plane import ControlPlane
from tests.e2e.controlplane.queues import create_queue, create_shared_objects
from tests.support import shipped_manifests
from tests.support.accounts import create_account, create_token, kubeconfig_with_token
from tests.support.kubernetes_client import Client, path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import train_job

HOOKS = "/apis/admissionregistration.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FEATURES = """deadline (activeDeadlineSeconds): 2.2
placement.affinity (affinity of pods): 2.1
watchdog.avoid_nodes (affinity of pods): 2.1
placement.image_pull_secrets (imagePullSecrets of pods): 2.1
placement.security_context (a security context of pods): 2.2
placement.container_security_context (a security context of containers): 2.2
queue.topology (an annotation of pods, which Kueue reads for their topology): 2.1
runtime_patches (runtimePatches): 2.2
volumes (several mounts of one volume): 2.1
initializer.dataset.storage_uri (a dataset from a store other than hf://): 2.1
initializer.model.storage_uri (a model from a store other than hf://): 2.1
initializer.dataset.ignore_patterns (IGNORE_PATTERNS): 2.1
initializer.model.ignore_patterns (IGNORE_PATTERNS): 2.1
trainer.config.peft_config (LoRA in a built-in trainer): 2.1
trainer.config.num_proc_per_node (a number of processes for llama3.2-3b): 2.1
runtime (Qwen in a built-in trainer): 2.1"""
QUOTAS = "quotas of queues are not shown"
SHOW_PODS = "`kubectl get pods -n kubeflow-system`"


@contextlib.contextmanager
def run_control_plane(folder, **parts):
    if reason := ControlPlane.unavailable_reason(**parts):
        pytest.skip(reason)
    with ControlPlane(folder, **parts) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with run_control_plane(tmp_path_factory.mktemp("checked") / "state", kueue=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(plane):
    with closing(Client.from_kubeconfig(str(plane.kubeconfig))) as opened:
        create_shared_objects(opened)
        yield opened


@pytest.fixture
def namespace(client, unique):
    client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": unique}})
    yield unique
    client.request("DELETE", f"/api/v1/namespaces/{unique}")


def run_check(kubeconfig, namespace="default"):
    """Run the check, and return its exit code, its rows and the text after the table.

    The rows are (grade, message, advice) by the name of the check.
    """
    done = subprocess.run(
        [sys.executable, "-m", "trainjob", "--kubeconfig", str(kubeconfig), "check", "-n", namespace],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    table, _, rest = done.stdout.partition("\n\n")
    found, name = {}, ""
    for line in table.splitlines():
        if line.startswith(" "):
            found[name] = (*found[name][:2], line.strip().removeprefix("-> "))
        else:
            grade, name, message = line[:7].strip(), line[9:20].strip(), line[22:].strip()
            found[name] = (grade, message, "")
    return done.returncode, found, rest


def test_a_complete_platform(plane, client, namespace):
    create_queue(client, namespace, "team")
    client.wait_for("LocalQueue", namespace, "team", lambda found: active_status(found) == "True")
    code, found, rest = run_check(plane.kubeconfig, namespace)
    assert found.pop("runtimes")[1].startswith("deepspeed-distributed, jax-distributed, mlx-distributed, torch-distr")
    assert found == {
        "api server": ("ok", f"{plane.server} is Kubernetes v1.36.3; you are admin", ""),
        "trainer": ("ok", "Kubeflow Trainer 2.3.0", ""),
        "jobset": ("ok", "JobSet is installed", ""),
        "permissions": ("ok", f"all required permissions are granted in namespace {namespace}", ""),
        "webhook": ("ok", "the Trainer's webhook responds", ""),
        "trainjob": ("ok", "a TrainJob on the runtime torch-distributed would be accepted", ""),
        "kueue": ("ok", "queues: team (any: cpu 1)", ""),
        "storage": ("ok", "a PersistentVolumeClaim without a storage class gets local-directory", ""),
    }
    assert (code, rest) == (0, f"TrainJobs can run in namespace {namespace}.\n")
    assert client.list("TrainJob", namespace) == []


def active_status(queue):
    conditions = (queue.get("status") or {}).get("conditions") or []
    return next((one["status"] for one in conditions if one["type"] == "Active"), "")


# -- permissions ------------------------------------------------------------------------------------------------------


@pytest.fixture
def restricted_kubeconfig(plane, client, namespace, tmp_path):
    """Return a kubeconfig of a service account without permissions."""
    create_account(client, namespace)
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_with_token(str(plane.kubeconfig), create_token(client, namespace), namespace))
    return path


def test_the_printed_roles_grant_the_missing_permissions(client, namespace, restricted_kubeconfig, unique):
    code, found, rest = run_check(restricted_kubeconfig, namespace)
    assert code == 1
    grade, message, advice = found["permissions"]
    assert grade == "failed"
    assert message.startswith(
        "you have no permission to create, get, list, delete, watch, patch trainjobs; list, watch pods; get pods/log"
    )
    assert message.endswith(f"ClusterTrainingRuntimes are not checked; StorageClasses are not checked; {QUOTAS}")
    person = f"`kubectl apply -n {namespace} -k manifests/person`"
    whole = f"{person} and `kubectl apply -k manifests/cluster`"
    assert advice == f"have an administrator run {whole}, or grant only the missing ones, listed below"
    assert found["api server"][1].endswith(f"; you are system:serviceaccount:{namespace}:robot")
    assert found["trainer"] == ("ok", "Kubeflow Trainer 2.3.0", "")
    unknown = ["webhook", "runtimes", "kueue", "storage", "claims", "sidecars", "quotas", "limits"]
    assert [name for name, row in found.items() if row[0] == "unknown"] == unknown
    for item in yaml.safe_load_all(rest.partition("kubectl apply -f FILE\n")[2]):
        within = item["metadata"].get("namespace")
        if not within:
            item["metadata"]["name"] = item.get("roleRef", item["metadata"])["name"] = unique
        path = f"/apis/{item['apiVersion']}/{f'namespaces/{within}/' if within else ''}{item['kind'].lower()}s"
        answer = client.request("POST", path, item, fieldValidation="Strict")
        assert answer.code == 201, answer.message
    code, found, rest = wait_until(
        lambda: (again := run_check(restricted_kubeconfig, namespace))[1]["permissions"][0] == "ok" and again, 90
    )
    assert (code, rest) == (0, f"TrainJobs can run in namespace {namespace}.\n")


def test_the_manifests_grant_all_permissions_of_a_user(client, namespace, restricted_kubeconfig, unique):
    """An account with manifests/person only lacks manifests/cluster, which an administrator applies."""
    shipped_manifests.apply_roles(client, namespace, "person", "robot")
    code, found, _ = wait_until(
        lambda: (done := run_check(restricted_kubeconfig, namespace))[1]["permissions"][0] == "warning" and done, 90
    )
    without = f"ClusterTrainingRuntimes are not checked; StorageClasses are not checked; {QUOTAS}"
    denied = "get, list clustertrainingruntimes; list storageclasses; list clusterqueues; list resourceflavors; "
    assert found["permissions"][1] == f"you have no permission to {denied}list topologies. Therefore: {without}"
    assert code == 0
    assert found["runtimes"] == ("unknown", "ClusterTrainingRuntimes can't be listed", "")
    for item in shipped_manifests.load_objects("cluster"):
        if item["kind"] == "ClusterRole":
            item["metadata"]["name"] = unique
        else:
            item["metadata"]["name"] = item["roleRef"]["name"] = unique
            item["subjects"] = [{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}]
        answer = client.request("POST", f"/apis/{item['apiVersion']}/{item['kind'].lower()}s", item)
        assert answer.code == 201, answer.message
    wait_until(
        lambda: (
            run_check(restricted_kubeconfig, namespace)[1]["permissions"]
            == ("ok", f"all required permissions are granted in namespace {namespace}", "")
        )
    )


# -- Kueue -------------------------------------------------------------------------------------------------------------


def test_queues(plane, client, namespace):
    no_queue = f"namespace {namespace} has no LocalQueue: a TrainJob that names a queue never starts"
    advice = "use no queue, or have a LocalQueue created in this namespace"
    assert run_check(plane.kubeconfig, namespace)[1]["kueue"] == ("warning", no_queue, advice)
    create_queue(client, namespace, "held", stopPolicy="Hold")
    client.wait_for("LocalQueue", namespace, "held", lambda found: active_status(found) == "False")
    code, found, _ = run_check(plane.kubeconfig, namespace)
    assert found["kueue"] == (
        "warning",
        "inactive: held: Can't submit new workloads to clusterQueue",
        "use an active queue, or wait",
    )
    assert code == 0


def test_kueue_without_its_trainjob_integration(plane, client, namespace):
    create_queue(client, namespace, "team")
    label = {"kueue.x-k8s.io/queue-name": "team"}
    with changed_webhooks(client, "mutatingwebhookconfigurations", "mtrainjob.kb.io", without_webhook):
        wait_until(lambda: not try_trainjob(client, namespace, **label).body["spec"]["suspend"])
        assert run_check(plane.kubeconfig, namespace)[1]["kueue"] == (
            "warning",
            "Kueue does not suspend a TrainJob that names a queue: its integration for TrainJobs is disabled",
            "add trainer.kubeflow.org/trainjob to integrations.frameworks of Kueue's configuration",
        )


# -- the Trainer -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def changed_webhooks(client, kind, name, edit):
    """Change a webhook until the context ends."""
    configurations = client.request("GET", f"{HOOKS}/{kind}").body["items"]
    (found,) = [one for one in configurations if name in [hook["name"] for hook in one["webhooks"]]]
    path = f"{HOOKS}/{kind}/{found['metadata']['name']}"
    assert client.request("PATCH", path, {"webhooks": edit(found["webhooks"], name)}).ok
    yield
    assert client.request("PATCH", path, {"webhooks": found["webhooks"]}).ok


def without_webhook(hooks, name):
    return [hook for hook in hooks if hook["name"] != name]


def with_unreachable_webhook(hooks, name):
    nowhere = {"url": "https://127.0.0.1:9/nothing"}
    return [{**hook, "clientConfig": nowhere} if hook["name"] == name else hook for hook in hooks]


def try_trainjob(client, namespace, **labels):
    """Return the response to a dry run of a TrainJob."""
    job = train_job(name="tried")
    job["metadata"]["labels"] = labels
    return client.request("POST", path_of("TrainJob", namespace), job, dryRun="All")


def test_an_unavailable_webhook(plane, client, namespace):
    with changed_webhooks(
        client, "validatingwebhookconfigurations", "validator.trainjob.trainer.kubeflow.org", with_unreachable_webhook
    ):
        wait_until(lambda: try_trainjob(client, namespace).code == 500)
        code, found, _ = run_check(plane.kubeconfig, namespace)
    assert code == 1
    grade, message, advice = found["webhook"]
    assert grade == "failed"
    assert 'failed calling webhook "validator.trainjob.trainer.kubeflow.org"' in message
    assert advice == f"no TrainJob can be created while it does not respond: check whether it runs, {SHOW_PODS}"
    assert "trainjob" not in found
    wait_until(lambda: try_trainjob(client, namespace).ok)


def test_an_unregistered_webhook(plane, client, namespace):
    wrong = train_job(name="tried", initializer={"dataset": {"storageUri": "hf://a/b"}})
    path = path_of("TrainJob", namespace)
    with changed_webhooks(
        client, "validatingwebhookconfigurations", "validator.trainjob.trainer.kubeflow.org", without_webhook
    ):
        wait_until(lambda: client.request("POST", path, wrong, dryRun="All").ok)
        code, found, _ = run_check(plane.kubeconfig, namespace)
    assert (code, *found["webhook"]) == (
        0,
        "warning",
        "an invalid TrainJob was accepted: the Trainer's webhook is not registered, so invalid TrainJobs never run",
        "reinstall the Trainer",
    )
    wait_until(lambda: not client.request("POST", path, wrong, dryRun="All").ok)


def test_no_stock_runtime(plane, client, namespace):
    stock = client.get("ClusterTrainingRuntime", None, "torch-distributed")
    client.delete("ClusterTrainingRuntime", None, "torch-distributed")
    wait_until(lambda: not try_trainjob(client, namespace).ok)
    code, found, _ = run_check(plane.kubeconfig, namespace)
    fresh = {name: stock["metadata"][name] for name in ("name", "labels")}
    client.create({**stock, "metadata": fresh})
    assert code == 1
    grade, message, advice = found["trainjob"]
    assert grade == "failed"
    assert message.endswith(("must be created before the TrainJob is created", "runtime 'torch-distributed' not found"))
    assert advice == "install the Trainer's runtimes, or select an existing one with runtime=..."


def old_trainer_row(version):
    """Return the row of an old Trainer."""
    parts = [line for line in FEATURES.splitlines() if line.rpartition(" ")[2] > version]
    message = (
        f"Kubeflow Trainer {version} lacks these features (each with the first version that has it): {', '.join(parts)}"
    )
    return "warning", message, "upgrade to Trainer 2.2 or later; until then TrainJobs that need them are refused"


def test_trainer_20(tmp_path):
    with run_control_plane(tmp_path / "state", trainer="2.0") as old:
        code, found, _ = run_check(old.kubeconfig)
    assert (code, found["trainer"]) == (0, old_trainer_row("2.0"))
    assert {row[0] for name, row in found.items() if name != "trainer"} == {"ok"}


def test_trainer_21_and_missing_parts(tmp_path):
    """If JobSet or the Trainer is missing, the check fails with advice."""
    with (
        run_control_plane(tmp_path / "state", trainer="2.1") as old,
        closing(Client.from_kubeconfig(str(old.kubeconfig))) as client,
    ):
        code, found, _ = run_check(old.kubeconfig)
        assert (code, found["trainer"]) == (0, old_trainer_row("2.1"))
        assert {row[0] for name, row in found.items() if name != "trainer"} == {"ok"}
        remove_custom_resources(client, "jobset.x-k8s.io")
        remove_custom_resources(client, "trainer.kubeflow.org")
        code, found, rest = run_check(old.kubeconfig)
    assert code == 1
    assert found["jobset"] == (
        "failed",
        "JobSet is not installed: TrainJobs are accepted, but never start",
        "install the version of JobSet that the Trainer's own manifests name",
    )
    assert found["trainer"] == (
        "failed",
        "Kubeflow Trainer is not installed: the cluster does not serve TrainJobs",
        "install Kubeflow Trainer 2.0 or later with its CRDs, or connect to the cluster that has it",
    )
    assert not {"webhook", "trainjob", "runtimes"} & found.keys()
    assert rest == "TrainJobs can't run in namespace default: fix the failed checks above.\n"


def remove_custom_resources(client, group):
    """Delete all custom resource definitions of an API group."""
    for found in client.request("GET", DEFINITIONS).body["items"]:
        if found["spec"]["group"] == group:
            assert client.request("DELETE", f"{DEFINITIONS}/{found['metadata']['name']}").ok
    wait_until(lambda: group not in [one["name"] for one in client.request("GET", "/apis").body["groups"]], 90)
