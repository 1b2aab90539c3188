"""The real kubectl reads from the laptop cluster as from a real one."""

from __future__ import annotations

import json

import pytest

from tests.e2e.local.kubectl import pod, trainjob

HOLD = "echo started; trap 'exit 0' TERM; while true; do sleep 0.1; done"


@pytest.fixture
def finished(kubectl):
    """Return kubectl in a namespace with the TrainJob `done`, which is complete."""
    kubectl.run("create", "--filename", "-", text=trainjob("done", "echo one; echo two", team="a"))
    kubectl.run("wait", "--for", "condition=Complete", "trainjob/done", "--timeout", "60s")
    return kubectl


def test_tables_have_the_columns_of_a_real_server(finished):
    [job] = finished.table("get", "trainjobs")
    assert (job.pop("AGE") != "", job) == (True, {"NAME": "done", "STATE": "Complete"})
    [jobset] = finished.table("get", "jobsets")
    assert (jobset["TERMINALSTATE"], jobset["COMPLETED"], jobset["SUSPENDED"]) == ("Completed", "True", "false")
    [batch_job] = finished.table("get", "jobs")
    assert (batch_job["STATUS"], batch_job["COMPLETIONS"]) == ("Complete", "1/1")
    [found] = finished.table("get", "pods", "--output", "wide")
    assert (found["READY"], found["STATUS"], found["RESTARTS"], found["IP"]) == ("0/1", "Completed", "0", "127.0.0.1")
    assert (found["NODE"], found["NOMINATED NODE"], found["READINESS GATES"]) == ("laptop", "<none>", "<none>")
    assert {one["REASON"] for one in finished.table("get", "events")} >= {"Scheduled", "Started", "Completed"}
    assert {one["NAME"] for one in finished.table("get", "clustertrainingruntimes")} >= {"torch-distributed"}


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("nodes", "NAME STATUS ROLES AGE VERSION"),
        ("namespaces", "NAME STATUS AGE"),
        ("configmaps", "NAME DATA AGE"),
        ("serviceaccounts", "NAME AGE"),
        ("storageclasses", "NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE"),
        ("clusterroles", "NAME CREATED_AT"),
        ("clusterrolebindings", "NAME ROLE AGE"),
    ],
)
def test_built_in_kinds_have_their_columns(kubectl, kind, columns):
    [first, *_] = kubectl.table("get", kind)
    assert [name.replace(" ", "_") for name in first] == columns.split()


def test_output_formats_and_selectors(finished):
    assert finished.run("get", "trainjobs", "--output", "name") == "trainjob.trainer.kubeflow.org/done\n"
    assert finished.run("get", "trainjob", "done", "--output", "yaml").startswith("apiVersion: trainer.kubeflow.org/")
    listed = json.loads(finished.run("get", "trainjobs", "--all-namespaces", "--output", "json"))["items"]
    assert finished.namespace in {one["metadata"]["namespace"] for one in listed}
    assert [one["NAME"] for one in finished.table("get", "trainjobs", "--selector", "team=a")] == ["done"]
    none = finished.attempt("get", "trainjobs", "--selector", "team=b")
    assert none.stderr == f"No resources found in {finished.namespace} namespace.\n"
    rows = finished.table("get", "trainjobs", "--all-namespaces", "--show-labels")
    assert {"NAMESPACE", "LABELS"} <= set(rows[0])
    assert 'trainjobs.trainer.kubeflow.org "nope" not found' in finished.fail("get", "trainjob", "nope")


def test_a_watch_prints_each_change(kubectl):
    with kubectl.start("get", "trainjobs", "--watch", "--output-watch-events") as watching:
        kubectl.run("create", "--filename", "-", text=trainjob("a", "true"))
        lines = []
        while not lines or "Complete" not in lines[-1]:
            lines.append(watching.stdout.readline())
        watching.terminate()
    assert [name for line in lines for name in line.split() if name.isupper()][:4] == ["EVENT", "NAME", "STATE", "AGE"]
    assert lines[1].split()[:2] == ["ADDED", "a"]
    assert lines[-1].split()[:3] == ["MODIFIED", "a", "Complete"]


def test_descriptions_have_status_and_events(finished):
    [found] = finished.table("get", "pods")
    described = finished.run("describe", "pod", found["NAME"])
    assert "Controlled By:  Job/done-node-0" in described
    assert {"Succeeded", "Completed", "Scheduled", "Started"} <= set(described.split())
    assert "Type:                  Complete" in finished.run("describe", "trainjob", "done")
    assert "Image:  pytorch/pytorch" in finished.run("describe", "clustertrainingruntime", "torch-distributed")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": claim}
    finished.run("apply", "--filename", "-", text=json.dumps(body))
    assert "StorageClass:  local-directory" in finished.run("describe", "pvc", "c")
    [row] = finished.table("get", "pvc")
    assert (row["STATUS"], row["STORAGECLASS"]) == ("Pending", "local-directory")


def test_logs(finished):
    [found] = finished.table("get", "pods")
    assert finished.run("logs", found["NAME"]) == "one\ntwo\n"
    assert finished.run("logs", "job/done-node-0", "--tail", "1") == "two\n"
    assert finished.run("logs", "--selector", "jobset.sigs.k8s.io/jobset-name=done") == "one\ntwo\n"
    assert "previous terminated container" in finished.fail("logs", found["NAME"], "--previous")


def test_logs_of_a_running_pod_are_followed(kubectl):
    kubectl.run("apply", "--filename", "-", text=pod("p", f"echo first; {HOLD}"))
    kubectl.run("wait", "--for", "jsonpath={.status.phase}=Running", "pod/p", "--timeout", "60s")
    with kubectl.start("logs", "p", "--container", "main", "--follow") as following:
        assert [following.stdout.readline() for _ in range(2)] == ["first\n", "started\n"]
        kubectl.run("delete", "pod", "p")
        assert following.wait(60) == 0
    assert 'pods "p" not found' in kubectl.fail("logs", "p")


def test_explain_reads_openapi(kubectl):
    assert "runtimeRef\t<Object> -required-" in kubectl.run("explain", "trainjob.spec")
    pod_spec = kubectl.run("explain", "pod.spec")
    assert "containers\t<[]Container> -required-" in pod_spec
    assert "List of containers belonging to the pod." in pod_spec
    assert "secretKeyRef\t<SecretKeySelector>" in kubectl.run("explain", "pod.spec.containers.env.valueFrom")
    assert 'field "nope" does not exist' in kubectl.fail("explain", "pod.spec.nope")
    assert "Number of nodes." in kubectl.run("explain", "trainjob.spec.trainer")
    assert "key of the secret" in kubectl.run("explain", "trainjob.spec.trainer.env.valueFrom.secretKeyRef")


def test_discovery(kubectl, laptop):
    assert kubectl.run("version").count("v1.36.3") == 2
    assert laptop.server in kubectl.run("cluster-info")
    names = {line.split()[0] for line in kubectl.run("api-resources").splitlines()}
    assert {"pods", "trainjobs", "clustertrainingruntimes", "jobsets", "storageclasses", "selfsubjectreviews"} <= names
    assert str(laptop.ca_file) in kubectl.run("config", "view")


def test_all_and_definitions(kubectl):
    kubectl.run("apply", "--filename", "-", text=pod("p", "true"))
    assert "pod/p" in kubectl.run("get", "all")
    definitions = kubectl.run("get", "crd", "--output", "name").splitlines()
    assert "customresourcedefinition.apiextensions.k8s.io/trainjobs.trainer.kubeflow.org" in definitions
    assert "serves a fixed set of kinds" in kubectl.fail("delete", "crd", "trainjobs.trainer.kubeflow.org")


def test_a_command_in_a_pod_is_refused_with_the_reason(kubectl):
    kubectl.run("apply", "--filename", "-", text=pod("p", HOLD))
    kubectl.run("wait", "--for", "jsonpath={.status.phase}=Running", "pod/p", "--timeout", "60s")
    assert "does not support exec of pods" in kubectl.fail("exec", "p", "--container", "main", "--", "ls")


def test_a_kubeconfig_of_an_earlier_version_gets_a_clear_message(kubectl, laptop):
    refused = kubectl.fail("get", "pods", "--server", laptop.server.replace("https:", "http:"))
    assert "Client sent an HTTP request to an HTTPS server" in refused
