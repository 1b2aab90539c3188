"""The real kubectl writes to the laptop cluster as to a real one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.local.kubectl import pod, trainjob

ROOT = Path(__file__).resolve().parents[3]
HOLD = "trap 'exit 0' TERM; while true; do sleep 0.1; done"
TRAINJOB = "trainjob.trainer.kubeflow.org/a"


def test_apply_creates_changes_and_leaves_unchanged(kubectl):
    def apply(text, *options):
        return kubectl.run("apply", "--filename", "-", *options, text=text)

    first, second = trainjob("a", "true", team="x", old="1"), trainjob("a", "true", team="y")
    assert apply(first, "--dry-run=server") == f"{TRAINJOB} created (server dry run)\n"
    assert apply(first) == f"{TRAINJOB} created\n"
    assert apply(first) == f"{TRAINJOB} unchanged\n"
    assert apply(second) == f"{TRAINJOB} configured\n"
    assert kubectl.read("trainjob", "a")["metadata"]["labels"] == {"team": "y"}
    wrong = second.replace('"trainer":', '"trainerz":')
    assert 'unknown field "spec.trainerz"' in kubectl.fail("apply", "--filename", "-", text=wrong)


def test_apply_merges_the_lists_of_built_in_kinds(kubectl):
    kubectl.run("apply", "--filename", "-", text=pod("p", HOLD, labels={"a": "1"}))
    changed = json.loads(pod("p", HOLD, labels={"a": "2"}))
    changed["spec"]["containers"][1]["image"] = "busybox:2"
    assert kubectl.run("apply", "--filename", "-", text=json.dumps(changed)) == "pod/p configured\n"
    found = kubectl.read("pod", "p")
    assert [(one["name"], one["image"]) for one in found["spec"]["containers"]] == [
        ("main", "busybox"),
        ("side", "busybox:2"),
    ]
    assert found["metadata"]["labels"] == {"a": "2"}
    patch = {"spec": {"containers": [{"name": "side", "image": "busybox:3"}]}}
    kubectl.run("patch", "pod", "p", "--patch", json.dumps(patch))
    assert [one["image"] for one in kubectl.read("pod", "p")["spec"]["containers"]] == ["busybox", "busybox:3"]


def test_server_side_apply(kubectl):
    options = ("apply", "--server-side", "--filename", "-")
    for text in (trainjob("a", "true", team="x"), trainjob("a", "true", team="y")):
        assert kubectl.run(*options, text=text) == f"{TRAINJOB} serverside-applied\n"
    assert kubectl.read("trainjob", "a")["metadata"]["labels"] == {"team": "y"}
    assert kubectl.run(*options, text=pod("p", HOLD)) == "pod/p serverside-applied\n"
    assert kubectl.run(*options, text=pod("p", HOLD, labels={"a": "b"})) == "pod/p serverside-applied\n"
    assert [one["name"] for one in kubectl.read("pod", "p")["spec"]["containers"]] == ["main", "side"]


def test_a_kustomization_is_applied(kubectl):
    applied = kubectl.run("apply", "--kustomize", str(ROOT / "manifests" / "person"))
    assert "role.rbac.authorization.k8s.io/trainjob-person created" in applied
    assert {one["NAME"] for one in kubectl.table("get", "roles")} >= {"trainjob-person"}


def test_create_label_annotate_and_patch(kubectl):
    kubectl.run("create", "secret", "generic", "s", "--from-literal", "token=secret")
    assert kubectl.read("secret", "s")["data"] == {"token": "c2VjcmV0"}
    assert 'secrets "s" already exists' in kubectl.fail("create", "secret", "generic", "s")
    kubectl.run("create", "configmap", "c", "--from-literal", "a=b")
    kubectl.run("create", "serviceaccount", "robot")
    kubectl.run("create", "--filename", "-", text=trainjob("a", "true"))
    kubectl.run("label", "trainjob", "a", "team=x")
    kubectl.run("annotate", "trainjob", "a", "note=y")
    kubectl.run("patch", "trainjob", "a", "--type", "merge", "--patch", '{"metadata":{"labels":{"more":"z"}}}')
    metadata = kubectl.read("trainjob", "a")["metadata"]
    assert (metadata["labels"], metadata["annotations"]) == ({"team": "x", "more": "z"}, {"note": "y"})


def test_typed_go_clients_send_protobuf(kubectl):
    """These commands use the typed clients of client-go, which encode their objects in protobuf."""
    kubectl.run("create", "job", "j", "--image", "busybox", "--", "sh", "-c", "echo from the job")
    kubectl.run("wait", "--for", "condition=Complete", "job/j", "--timeout", "60s")
    assert kubectl.run("logs", "job/j") == "from the job\n"
    kubectl.run("create", "serviceaccount", "robot")
    assert len(kubectl.run("create", "token", "robot").strip()) > 20
    kubectl.run("create", "role", "reader", "--verb", "get,list", "--resource", "pods,trainjobs")
    kubectl.run("create", "rolebinding", "reader", "--role", "reader", "--serviceaccount", f"{kubectl.namespace}:robot")
    rules = kubectl.read("role", "reader")["rules"]
    assert {name for rule in rules for name in rule["resources"]} == {"pods", "trainjobs"}


def test_the_documented_fault_ends_a_pod(kubectl):
    kubectl.run("apply", "--filename", "-", text=pod("p", HOLD))
    kubectl.run("wait", "--for", "jsonpath={.status.phase}=Running", "pod/p", "--timeout", "60s")
    kubectl.run("annotate", "pod", "p", "local.trainjob.dev/fault=OOMKilled")
    kubectl.run("wait", "--for", "jsonpath={.status.phase}=Failed", "pod/p", "--timeout", "60s")
    [found] = kubectl.table("get", "pods")
    assert found["STATUS"] == "OOMKilled"


def test_delete_waits_until_the_object_is_gone(kubectl):
    kubectl.run("apply", "--filename", "-", text=trainjob("a", HOLD))
    kubectl.run("wait", "--for", "jsonpath={.status.jobsStatus[0].ready}=1", "trainjob/a", "--timeout", "60s")
    deleted = kubectl.run("delete", "trainjob", "a", "--cascade=foreground")
    assert deleted == f'trainjob.trainer.kubeflow.org "a" deleted from {kubectl.namespace} namespace\n'
    assert kubectl.run("get", "trainjobs,jobsets,jobs,pods", "--output", "name") == ""
    kubectl.run("apply", "--filename", "-", text=pod("p", HOLD))
    kubectl.run("delete", "--filename", "-", text=pod("p", HOLD))
    assert 'pods "p" not found' in kubectl.fail("delete", "pod", "p")


def test_auth_reports_the_rights_of_the_user(kubectl):
    kubectl.run("apply", "--kustomize", str(ROOT / "manifests" / "person"))
    person = ("--as", "ann", "--as-group", "trainjob-users")
    assert kubectl.run("auth", "can-i", "create", "trainjobs") == "yes\n"
    assert kubectl.run("auth", "can-i", "create", "trainjobs", *person) == "yes\n"
    refused = kubectl.attempt("auth", "can-i", "create", "trainjobs", "--as", "ann")
    assert (refused.returncode, refused.stdout) == (1, "no\n")
    assert "trainjobs.trainer.kubeflow.org" in kubectl.run("auth", "can-i", "--list", *person)
    assert "kubernetes-admin" in kubectl.run("auth", "whoami")
    assert 'User "ann" cannot list resource "pods"' in kubectl.fail("get", "pods", "--as", "ann")
