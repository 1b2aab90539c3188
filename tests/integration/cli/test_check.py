"""Tests of `trainjob check` on the laptop cluster, with all, no and some permissions."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from tests.support import shipped_manifests
from tests.support.accounts import create_account, create_token, grant, kubeconfig_with_token, wait_until_allowed
from tests.support.kubernetes_client import Client
from trainjob import CustomTrainerContainer, RunKey, TrainJob
from trainjob.client import Cluster, Connection
from trainjob.lifecycle import cancel, submit, wait
from trainjob.status.permissions import PERMISSIONS, format_permissions


@pytest.fixture
def client(laptop):
    with closing(Client.from_kubeconfig(str(laptop.kubeconfig))) as opened:
        yield opened


@pytest.fixture
def restricted_environment(laptop, client, namespace, tmp_path):
    """Return an environment in which a command runs as a service account without permissions."""
    create_account(client, namespace)
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_with_token(str(laptop.kubeconfig), create_token(client, namespace), namespace))
    return {"KUBECONFIG": str(path)}


@pytest.fixture
def restricted_client(client, namespace):
    """Return a client of the same account, which shows when its permissions apply."""
    token = create_token(client, namespace)
    with closing(client.with_token(token)) as opened:
        yield opened


def parse_rows(text):
    """Return the rows of the report: (grade, text, advice) by the name of the check."""
    found, name = {}, ""
    for line in text.partition("\n\n")[0].splitlines():
        if line.startswith(" "):
            found[name] = (*found[name][:2], line.strip().removeprefix("-> "))
        else:
            grade, name, text_of_row = line[:7].strip(), line[9:20].strip(), line[22:].strip()
            found[name] = (grade, text_of_row, "")
    return found


def test_an_administrator_passes_all_checks(trainjob, laptop, client, namespace):
    """The check leaves no TrainJob behind."""
    done = trainjob("check", "-n", namespace)
    assert (done.returncode, done.stderr) == (0, "")
    found = parse_rows(done.stdout)
    assert found.pop("runtimes")[1].startswith("jax-distributed, torch-distributed, torchtune-llama3.2-1b, ")
    assert found == {
        "api server": ("ok", f"{laptop.server} is Kubernetes v1.36.3; you are kubernetes-admin", ""),
        "trainer": ("ok", "Kubeflow Trainer 2.3.0", ""),
        "jobset": ("ok", "JobSet is installed", ""),
        "permissions": ("ok", f"all required permissions are granted in namespace {namespace}", ""),
        "webhook": ("ok", "the Trainer's webhook responds", ""),
        "trainjob": ("ok", "a TrainJob on the runtime torch-distributed would be accepted", ""),
        "kueue": ("ok", "Kueue is not installed: TrainJobs start immediately and can't use a queue", ""),
        "storage": ("ok", "a PersistentVolumeClaim without a storage class gets local-directory", ""),
    }
    assert done.stdout.endswith(f"\n\nTrainJobs can run in namespace {namespace}.\n")
    assert client.list("TrainJob", namespace) == []


def test_json_has_rows_and_grants(trainjob, laptop, restricted_environment, namespace):
    done = trainjob("check", "--json", env=restricted_environment)
    assert (done.returncode, done.stderr) == (1, "")
    report = json.loads(done.stdout)
    rows, grants = report.pop("rows"), report.pop("grants")
    assert report == {"server": laptop.server, "namespace": namespace, "can_run": False}
    assert rows[2] == {"name": "jobset", "grade": "ok", "text": "JobSet is installed", "advice": ""}
    assert [found["kind"] for found in grants] == ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]


def test_missing_permissions_are_reported_with_the_roles_to_apply(trainjob, restricted_environment, namespace):
    """The other checks still run if their requests are permitted."""
    done = trainjob("check", env=restricted_environment)
    assert (done.returncode, done.stderr) == (1, "")
    found, denied, person = (
        parse_rows(done.stdout),
        laptop_permissions(PERMISSIONS),
        f"`kubectl apply -n {namespace} -k manifests/person`",
    )
    consequences = dict.fromkeys(permission.consequence for permission in denied)
    assert found["permissions"] == (
        "failed",
        f"you have no permission to {format_permissions(denied)}. Therefore: {'; '.join(consequences)}",
        (
            f"have an administrator run {person} and `kubectl apply -k manifests/cluster`, or grant only the "
            "missing ones, listed below"
        ),
    )
    untried = ("unknown", "it can't be tested without the permission to create trainjobs", "")
    assert found["webhook"] == untried
    assert found["runtimes"] == ("unknown", "ClusterTrainingRuntime and TrainingRuntimes can't be listed", "")
    assert found["claims"] == ("unknown", f"the PersistentVolumeClaims of namespace {namespace} can't be listed", "")
    assert found["sidecars"][0] == "unknown"
    assert [row[0] for row in found.values()] == ["ok", "ok", "ok", "failed", *["unknown"] * 2, "ok", *["unknown"] * 5]
    assert f"TrainJobs can't run in namespace {namespace}: fix the failed checks above.\n" in done.stdout


def laptop_permissions(permissions):
    """Return the permissions for kinds that the laptop cluster has."""
    return [permission for permission in permissions if permission.group != "kueue.x-k8s.io"]


def test_missing_optional_permissions_are_a_warning(
    trainjob, restricted_environment, restricted_client, client, namespace
):
    """The warning has the consequences, but TrainJobs can run."""
    rules = [rule for found in shipped_manifests.load_objects("steps") for rule in found["rules"]]
    less = [rule for rule in rules if not {"events", "pods/log"} & set(rule["resources"])]
    grant(client, namespace, less)
    wait_until_allowed(restricted_client, namespace, "create", "trainer.kubeflow.org", "trainjobs")
    done = trainjob("check", env=restricted_environment)
    assert done.returncode == 0, done.stdout
    grade, text, advice = parse_rows(done.stdout)["permissions"]
    assert grade == "warning"
    assert text == (
        "you have no permission to get pods/log; list events; get, list persistentvolumeclaims; get namespaces; "
        "list resourcequotas; list limitranges; get, list clustertrainingruntimes; list storageclasses. "
        "Therefore: logs can't be read; Warning events are not reported; a sweep keeps each TrainJob that may own an "
        "unexported model; PersistentVolumeClaims are not checked; sidecars and Pod Security of the namespace are not "
        "checked; ResourceQuotas are not checked; LimitRanges are not checked; ClusterTrainingRuntimes are not "
        "checked; StorageClasses are not checked"
    )
    assert "manifests/person" in advice
    assert parse_rows(done.stdout)["trainjob"][0] == "ok"


def test_required_permissions_are_sufficient(
    trainjob, restricted_environment, restricted_client, client, namespace, unique
):
    """A user with only these permissions can submit, wait for and cancel a TrainJob."""
    rules = [
        {"apiGroups": [permission.group], "resources": [permission.resource], "verbs": [permission.verb]}
        for permission in PERMISSIONS
        if permission.required
    ]
    grant(client, namespace, rules)
    wait_until_allowed(restricted_client, namespace, "list", "", "pods")
    done = trainjob("check", env=restricted_environment)
    assert done.returncode == 0, done.stdout
    with closing(Cluster(Connection(kubeconfig=restricted_environment["KUBECONFIG"]), retry_seconds=5.0)) as engine:
        work = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["true"]))
        reference = submit(engine, work, RunKey("test", "check", unique, "run-1"))
        assert wait(engine, reference).succeeded
        work = TrainJob(trainer=CustomTrainerContainer(image="busybox", command=["sleep", "600"]))
        assert not cancel(engine, submit(engine, work, RunKey("test", "check", unique, "run-2"))).had_finished


def test_a_missing_namespace_fails_the_webhook_check(trainjob, unique):
    done = trainjob("check", "-n", unique)
    assert done.returncode == 1
    assert parse_rows(done.stdout)["webhook"] == (
        "failed",
        f'can\'t create trainjobs in namespace {unique}: namespaces "{unique}" not found',
        "create the namespace, or select another one with --namespace",
    )


def test_a_lost_claim_is_a_warning(trainjob, client, namespace):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "w"}, "spec": spec}
    client.create(claim, namespace)
    assert parse_rows(trainjob("check", "-n", namespace).stdout)["claims"] == (
        "ok",
        "w (ReadWriteOnce, Pending)",
        "on one node only: w; pods on several nodes need ReadWriteMany",
    )
    client.patch("PersistentVolumeClaim", namespace, "w", {"status": {"phase": "Lost"}}, "status")
    assert parse_rows(trainjob("check", "-n", namespace).stdout)["claims"][:2] == (
        "warning",
        "not usable: w (ReadWriteOnce, Lost)",
    )


def test_an_unreachable_server_is_an_error(trainjob, restricted_environment, tmp_path):
    """The command prints one error and no rows."""
    content = json.loads((tmp_path / "kubeconfig").read_text())
    content["clusters"][0]["cluster"] = {"server": "http://127.0.0.1:9"}
    (tmp_path / "kubeconfig").write_text(json.dumps(content))
    done = trainjob("check", env=restricted_environment)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: no response from http://127.0.0.1:9: can't get the API server's version: ")
    assert "check that the API server is running and that the connection names the right server" in done.stderr
