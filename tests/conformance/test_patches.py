"""Patches of pods in each version's field, and their effect on JobSet, Job and pod."""

from __future__ import annotations

import pytest

from tests.support.trainjobs import JOBSET, pod_patch, shell

GATE = {"schedulingGates": [{"name": "example.org/gate"}]}
"""Keeps a pod from being scheduled, so that any node selector works."""
POD = {
    **GATE,
    "nodeSelector": {"accelerator": "none"},
    "tolerations": [{"key": "example.org/a", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
            }
        }
    },
    "serviceAccountName": "worker",
    "imagePullSecrets": [{"name": "registry"}],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "scratch", "emptyDir": {"medium": "Memory"}},
    ],
}
MOUNTS = [{"name": "data", "mountPath": "/data", "readOnly": True}, {"name": "scratch", "mountPath": "/scratch"}]
PATCH = {**POD, "containers": [{"name": "node", "volumeMounts": MOUNTS}]}
LABELS = {"labels": {"team": "a"}, "annotations": {"note": "b"}}


def runtime_patch(spec, manager="example.org/a", job="node", pod=None, own=None, jobset=None):
    """Return a runtimePatch with metadata for the pod, its Job and the JobSet."""
    template = {"spec": spec, **({"metadata": pod} if pod else {})}
    one = {"name": job, "template": {"spec": {"template": template}, **({"metadata": own} if own else {})}}
    whole = {"spec": {"replicatedJobs": [one]}, **({"metadata": jobset} if jobset else {})}
    return {"manager": manager, "trainingRuntimeSpec": {"template": whole}}


def create_service_account(client, namespace):
    client.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "worker"}}, namespace)


def wait_for_pod(client, namespace, name="job"):
    return client.wait_for("Pod", namespace, "", bool, labelSelector=f"{JOBSET}={name}")


def has_metadata(metadata, expected):
    """Return whether these labels and annotations are present, perhaps with others."""
    return all(expected[part].items() <= (metadata.get(part) or {}).items() for part in expected)


def test_patch_of_a_pod(client, namespace, target):
    """Volumes, mounts, placement, account and pull secrets of a patch are in the pod, plus two default tolerations."""
    create_service_account(client, namespace)
    client.create(shell("true", **pod_patch(target.trainer, PATCH)), namespace)
    spec = wait_for_pod(client, namespace)["spec"]
    assert spec["tolerations"][0] == PATCH["tolerations"][0]
    assert {one["key"] for one in spec["tolerations"][1:]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    same = [name for name in POD if name not in ("tolerations", "volumes")]
    assert {name: spec[name] for name in same} == {name: POD[name] for name in same}
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert [volumes[one["name"]] for one in POD["volumes"]] == POD["volumes"]
    mounts = {one["name"]: one for one in spec["containers"][0]["volumeMounts"]}
    assert [mounts[one["name"]] for one in MOUNTS] == MOUNTS
    assert spec["containers"][0]["command"] == ["sh", "-c", "true"]


@pytest.mark.since("2.2")
def test_security_contexts(client, namespace, target):
    """Security contexts of pod and container are in the pod."""
    context = {"runAsUser": 1000, "fsGroup": 2000, "seccompProfile": {"type": "RuntimeDefault"}}
    own = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    spec = {**GATE, "securityContext": context, "containers": [{"name": "node", "securityContext": own}]}
    client.create(shell("true", **pod_patch(target.trainer, spec)), namespace)
    found = wait_for_pod(client, namespace)["spec"]
    assert (found["securityContext"], found["containers"][0]["securityContext"]) == (context, own)


@pytest.mark.since("2.3")
def test_grace_period(client, namespace, target):
    """terminationGracePeriodSeconds is in the pod since 2.3."""
    spec = {**GATE, "terminationGracePeriodSeconds": 7}
    client.create(shell("true", **pod_patch(target.trainer, spec)), namespace)
    assert wait_for_pod(client, namespace)["spec"]["terminationGracePeriodSeconds"] == 7


@pytest.mark.since("2.2")
def test_metadata_patches(client, namespace):
    """Labels and annotations for the pod, the Job and the JobSet apply only to that object."""
    values = {kind: {part: {kind: part} for part in ("labels", "annotations")} for kind in ("pod", "own", "jobset")}
    client.create(shell("true", runtimePatches=[runtime_patch(GATE, **values)]), namespace)
    pod = wait_for_pod(client, namespace)["metadata"]
    job = client.get("Job", namespace, "job-node-0")["metadata"]
    jobset = client.get("JobSet", namespace, "job")["metadata"]
    found = {
        title: [kind for kind in values if has_metadata(metadata, values[kind])]
        for title, metadata in (("pod", pod), ("job", job), ("jobset", jobset))
    }
    assert found == {"pod": ["pod"], "job": ["own"], "jobset": ["jobset"]}


@pytest.mark.before("2.2")
def test_metadata_patches_before_2_2(client, namespace):
    """Up to 2.1 metadata of podTemplateOverrides applies to the pod, and spec.labels only to the JobSet."""
    targets = [{"name": "node"}]
    overrides = [{"targetJobs": targets, "metadata": LABELS, "spec": GATE}]
    whole = {"labels": {"whole": "c"}, "annotations": {"whole": "d"}}
    client.create(shell("true", podTemplateOverrides=overrides, **whole), namespace)
    pod = wait_for_pod(client, namespace)["metadata"]
    assert has_metadata(pod, LABELS)
    jobset = client.get("JobSet", namespace, "job")["metadata"]
    assert (has_metadata(jobset, whole), has_metadata(jobset, LABELS), has_metadata(pod, whole)) == (True, False, False)


def test_own_metadata(client, namespace, target):
    """A TrainJob's own labels and annotations do not apply to its JobSet or its pods."""
    job = shell("true", **pod_patch(target.trainer, GATE))
    client.create({**job, "metadata": {"name": "job", **LABELS}}, namespace)
    pod = wait_for_pod(client, namespace)["metadata"]
    assert (has_metadata(pod, LABELS), has_metadata(client.get("JobSet", namespace, "job")["metadata"], LABELS)) == (
        False,
        False,
    )


@pytest.mark.since("2.2")
def test_several_managers(client, namespace):
    """Patches of several managers apply in order. Maps and named lists are merged, tolerations are replaced."""
    first = {
        **GATE,
        "nodeSelector": {"a": "1", "b": "1"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "volumes": [{"name": "a", "emptyDir": {}}],
    }
    second = {
        "nodeSelector": {"b": "2", "c": "2"},
        "tolerations": [{"key": "b", "operator": "Exists"}],
        "volumes": [{"name": "b", "emptyDir": {}}],
    }
    patches = [
        runtime_patch(first, "example.org/z", pod={"labels": {"x": "1"}}),
        runtime_patch(second, "example.org/a", pod=LABELS),
    ]
    client.create(shell("true", runtimePatches=patches), namespace)
    pod = wait_for_pod(client, namespace)
    assert pod["spec"]["nodeSelector"] == {"a": "1", "b": "2", "c": "2"}
    assert [one["key"] for one in pod["spec"]["tolerations"][:-2]] == ["b"]
    assert {"a", "b"} <= {one["name"] for one in pod["spec"]["volumes"]}
    assert has_metadata(pod["metadata"], {"labels": {"x": "1", "team": "a"}})


@pytest.mark.since("2.2")
def test_timestamps_of_patches(client, namespace):
    """A patch gets a timestamp if it has none, and whenever it changes."""
    old = "2020-01-01T00:00:00Z"
    given = {**runtime_patch({"nodeSelector": {"a": "1"}}), "time": old}
    none = runtime_patch({"nodeSelector": {"b": "1"}}, "example.org/b")
    created = client.create(shell("true", suspend=True, runtimePatches=[given, none]), namespace)["spec"]
    assert created["runtimePatches"][0]["time"] == old
    stamped = created["runtimePatches"][1]["time"]
    assert stamped > old
    other = client.patch("TrainJob", namespace, "job", {"metadata": {"labels": {"a": "b"}}})["spec"]
    assert other == created
    change = [
        {**runtime_patch({"nodeSelector": {"a": "2"}}), "time": old},
        {**created["runtimePatches"][1], "time": old},
    ]
    after = client.patch("TrainJob", namespace, "job", {"spec": {"runtimePatches": change}})["spec"]["runtimePatches"]
    assert after[0]["time"] >= stamped
    assert after[1]["time"] == stamped


def test_patches_while_suspended(client, namespace, target):
    """Node selector, tolerations and labels that change while a job is suspended apply to its pods on resume."""
    client.create(
        shell("true", suspend=True, **pod_patch(target.trainer, {**GATE, "nodeSelector": {"a": "1"}})), namespace
    )
    client.wait_for("JobSet", namespace, "job", bool)
    change = {**GATE, "nodeSelector": {"a": "2"}, "tolerations": [{"key": "x", "operator": "Exists"}]}
    client.patch("TrainJob", namespace, "job", {"spec": pod_patch(target.trainer, change)})
    client.patch("TrainJob", namespace, "job", {"spec": {"suspend": False}})
    spec = wait_for_pod(client, namespace)["spec"]
    assert spec["nodeSelector"] == {"a": "2"}
    assert spec["tolerations"][0] == change["tolerations"][0]


@pytest.mark.parametrize("step", ["dataset-initializer", "model-initializer"])
def test_patches_of_initializers(client, namespace, target, step):
    """A patch applies to initializer pods by the name of their replicated job."""
    spec = {**GATE, "nodeSelector": {"a": "1"}}
    job = shell("true", runtime="torchtune-llama3.2-1b", **pod_patch(target.trainer, spec, [step]))
    client.create(job, namespace)
    pod = client.wait_for("Pod", namespace, "", bool, labelSelector=f"jobset.sigs.k8s.io/replicatedjob-name={step}")
    assert pod["spec"]["nodeSelector"] == {"a": "1"}
