"""Accepted jobs that do not start, whose status has no reason, and the object that has the reason instead."""

from __future__ import annotations

import pytest

from tests.conformance.unstartable_jobs import (
    claim_of_class,
    create_job,
    has_event_time,
    pod_with_volume,
    trainer_with_limits,
    trainer_with_variable,
    wait_for_event,
)
from tests.support.trainjobs import JOBSET, counters, list_pods

NODES = "0/1 nodes are available: "
NO_HELP = (
    " no new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
)
UNMATCHED = f"{NODES}1 node(s) didn't match Pod's node affinity/selector.{NO_HELP}"
REQUIRED_TERM = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "nope", "operator": "Exists"}]}]}


# Pods that cannot be scheduled: trainer, patch of the pod, the scheduler's message.
UNSCHEDULABLE = {
    "gpu": (trainer_with_limits(**{"nvidia.com/gpu": "64"}), {}, f"{NODES}1 Insufficient nvidia.com/gpu.{NO_HELP}"),
    "size": (
        {"resourcesPerNode": {"requests": {"cpu": "1000", "memory": "640Ti"}}},
        {},
        f"{NODES}1 Insufficient cpu, 1 Insufficient memory.{NO_HELP}",
    ),
    "selector": ({}, {"nodeSelector": {"nope": "x"}}, UNMATCHED),
    "affinity": (
        {},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": REQUIRED_TERM}}},
        UNMATCHED,
    ),
    "claim": (
        {},
        pod_with_volume(persistentVolumeClaim={"claimName": "nope"}),
        f'{NODES}persistentvolumeclaim "nope" not found. not found',
    ),
    "unbound": (
        {},
        pod_with_volume(persistentVolumeClaim={"claimName": "unbound"}),
        f"{NODES}pod has unbound immediate PersistentVolumeClaims. not found",
    ),
}


def is_only_active(job):
    """Return whether the TrainJob's status shows only an active Job."""
    return counters(job) == {"node": {"active": 1}} and "conditions" not in job["status"]


def scheduling_failure(pod):
    """Return reason and message why a pod is not scheduled.

    The result is None if it is scheduled, or if the scheduler has not seen it.
    """
    found = [one for one in pod["status"].get("conditions", []) if one["type"] == "PodScheduled"]
    return (found[0]["reason"], found[0]["message"]) if found and found[0]["status"] == "False" else None


@pytest.mark.only("laptop", "controlplane")
def test_unschedulable_pods(client, namespace, target):
    """Only the condition PodScheduled and an event show an unschedulable pod. jobsStatus counts it as active."""
    client.create(claim_of_class("unbound", "nope"), namespace)
    for name, (trainer, pod, _) in UNSCHEDULABLE.items():
        create_job(client, namespace, target, name, trainer, pod)
    for name, (_, _, text) in UNSCHEDULABLE.items():
        pod = client.wait_for("Pod", namespace, "", scheduling_failure, labelSelector=f"{JOBSET}={name}")
        assert scheduling_failure(pod) == ("Unschedulable", text)
        assert pod["status"]["phase"] == "Pending"
        event = wait_for_event(client, namespace, "Pod", f"{name}-node-0-0-", "FailedScheduling")
        assert (event["message"], event["type"], has_event_time(event)) == (text, "Warning", True)
        client.wait_for("TrainJob", namespace, name, is_only_active)


@pytest.mark.only("laptop", "controlplane")
def test_unbound_claims(client, namespace):
    """A claim with a missing StorageClass, or with none, stays Pending, and an event has the reason."""
    for name, storage_class in (("unknown", "nope"), ("none", "")):
        client.create(claim_of_class(name, storage_class), namespace)
    event = wait_for_event(client, namespace, "PersistentVolumeClaim", "unknown", "ProvisioningFailed")
    assert (event["type"], event["message"]) == ("Warning", 'storageclass.storage.k8s.io "nope" not found')
    event = wait_for_event(client, namespace, "PersistentVolumeClaim", "none", "FailedBinding")
    text = "no persistent volumes available for this claim and no storage class is set"
    assert (event["type"], event["message"]) == ("Normal", text)
    assert {item["status"]["phase"] for item in client.list("PersistentVolumeClaim", namespace)} == {"Pending"}


def test_scheduling_gates(client, namespace, target):
    """A pod with a scheduling gate waits without an event. The reason of its PodScheduled is SchedulingGated."""
    create_job(client, namespace, target, "job", None, {"schedulingGates": [{"name": "example.org/gate"}]})
    pod = client.wait_for("Pod", namespace, "", scheduling_failure, labelSelector=f"{JOBSET}=job")
    assert scheduling_failure(pod) == ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")


# Containers that cannot be created: trainer, reason and message of the container's state.
WAITING = {
    "secret": (trainer_with_variable("secretKeyRef", "nope"), "CreateContainerConfigError", 'secret "nope" not found'),
    "key": (
        trainer_with_variable("secretKeyRef", "there"),
        "CreateContainerConfigError",
        "couldn't find key k in Secret {}/there",
    ),
    "configmap": (
        trainer_with_variable("configMapKeyRef", "nope"),
        "CreateContainerConfigError",
        'configmap "nope" not found',
    ),
}


def waiting_reason(pod):
    """Return reason and message why a pod's first container waits; empty if they are unknown."""
    states = [one["state"].get("waiting", {}) for one in pod["status"].get("containerStatuses", [])]
    return (states[0].get("reason", ""), states[0].get("message", "")) if states else ("", "")


def test_missing_secrets(client, namespace, target):
    """Only the container's state CreateContainerConfigError shows a missing Secret, key or ConfigMap."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "there"}, "stringData": {"a": "b"}}
    client.create(secret, namespace)
    for name, (trainer, _, _) in WAITING.items():
        create_job(client, namespace, target, name, trainer)
    for name, (_, reason, text) in WAITING.items():
        query = {"labelSelector": f"{JOBSET}={name}"}
        pod = client.wait_for(
            "Pod", namespace, "", lambda one, reason=reason: waiting_reason(one)[0] == reason, **query
        )
        assert waiting_reason(pod)[1].lower() == text.format(namespace).lower()
        client.wait_for("TrainJob", namespace, name, is_only_active)


def test_missing_image(client, namespace, target):
    """Only the container's state ImagePullBackOff and the pod's events show an image that cannot be pulled."""
    create_job(client, namespace, target, "job", {"image": "does-not-exist.invalid/x:1"})
    query = {"labelSelector": f"{JOBSET}=job"}
    client.wait_for("Pod", namespace, "", lambda one: waiting_reason(one)[0] == "ImagePullBackOff", **query)
    event = wait_for_event(client, namespace, "Pod", "job-node-0-0-", "Failed")
    assert (event["type"], has_event_time(event)) == ("Warning", False)
    client.wait_for("TrainJob", namespace, "job", is_only_active)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ({"secret": {"secretName": "nope"}}, 'secret "nope" not found'),
        ({"configMap": {"name": "nope"}}, 'configmap "nope" not found'),
    ],
    ids=["secret", "configmap"],
)
def test_missing_volumes(client, namespace, target, source, text):
    """Only an event FailedMount shows a volume of a missing Secret or ConfigMap. The container just waits."""
    create_job(client, namespace, target, "job", None, pod_with_volume(**source))
    event = wait_for_event(client, namespace, "Pod", "job-node-0-0-", "FailedMount")
    assert text in event["message"]
    assert (event["type"], has_event_time(event)) == ("Warning", False)
    (pod,) = list_pods(client, namespace)
    assert waiting_reason(pod) == ("ContainerCreating", "")


def test_missing_service_account(client, namespace, target):
    """A missing service account causes an event of the Job. There is no pod, and jobsStatus is all zeros."""
    create_job(client, namespace, target, "job", None, {"serviceAccountName": "nope"})
    event = wait_for_event(client, namespace, "Job", "job-node-0", "FailedCreate")
    why = f'error looking up service account {namespace}/nope: serviceaccount "nope" not found'
    assert event["message"] == f'Error creating: pods "job-node-0-0-" is forbidden: {why}'
    assert (event["type"], has_event_time(event)) == ("Warning", False)
    job = client.wait_for("TrainJob", namespace, "job", lambda one: "status" in one)
    assert (counters(job), list_pods(client, namespace)) == ({"node": {}}, [])


@pytest.mark.differs("laptop", "there are no ResourceQuotas: a local cluster has one user")
def test_quota(client, namespace, target):
    """A pod beyond the namespace's quota causes an event of the Job. There is no pod, and jobsStatus is all zeros."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
    client.create({**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "1"}}}, namespace)
    client.wait_for("ResourceQuota", namespace, "small", lambda one: one.get("status", {}).get("hard"))
    create_job(client, namespace, target, "job", trainer_with_limits(**{"nvidia.com/gpu": "2"}))
    event = wait_for_event(client, namespace, "Job", "job-node-0", "FailedCreate")
    assert event["message"].startswith('Error creating: pods "job-node-0-0-')
    used = "requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=1"
    assert event["message"].endswith(f" is forbidden: exceeded quota: small, {used}")
    job = client.wait_for("TrainJob", namespace, "job", lambda one: "status" in one)
    assert (counters(job), list_pods(client, namespace)) == ({"node": {}}, [])
