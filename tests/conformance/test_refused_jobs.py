"""Accepted TrainJobs whose Jobs the API server rejects when the JobSet controller creates them."""

from __future__ import annotations

import pytest

from tests.conformance.unstartable_jobs import (
    create_job,
    has_event_time,
    pod_with_volume,
    trainer_with_limits,
    wait_for_event,
)
from tests.support.trainjobs import JOBSET, is_finished, pod_patch, shell

KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NO_OPERATOR = {"key": "a", "operator": "Nope"}
CONTAINER = "spec.template.spec.containers[0]"
# Jobs of the JobSet controller that the API server rejects: trainer, patch of the pod, message.
REFUSED = {
    "a container without an image": (
        {},
        {"containers": [{"name": "other"}]},
        f"{CONTAINER}.image: Required value",
    ),
    "an init container without an image": (
        {},
        {"initContainers": [{"name": "other"}]},
        "spec.template.spec.initContainers[0].image: Required value",
    ),
    "a mount without its volume": (
        {},
        {"containers": pod_with_volume()["containers"]},
        f'{CONTAINER}.volumeMounts[0].name: Not found: "v"',
    ),
    "a claim without a name": (
        {},
        pod_with_volume(persistentVolumeClaim={"claimName": ""}),
        (
            "[spec.template.spec.volumes[0].persistentVolumeClaim.claimName: Required value, "
            f'{CONTAINER}.volumeMounts[0].name: Not found: "v"]'
        ),
    ),
    "a variable's name": (
        {"env": [{"name": "a b=c", "value": "1"}]},
        {},
        (
            f'{CONTAINER}.env[0].name: Invalid value: "a b=c": a valid environment variable name must '
            "consist only of printable ASCII characters other than '='"
        ),
    ),
    "a request above the limit": (
        {"resourcesPerNode": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}},
        {},
        f'{CONTAINER}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    "a GPU request without a limit": (
        {"resourcesPerNode": {"requests": {"nvidia.com/gpu": "1"}}},
        {},
        f"{CONTAINER}.resources.limits: Required value: Limit must be set for non overcommitable resources",
    ),
    "half a GPU": (
        trainer_with_limits(**{"nvidia.com/gpu": "0.5"}),
        {},
        f'{CONTAINER}.resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer',
    ),
    "gpu": (
        trainer_with_limits(gpu="1"),
        {},
        (
            f'[{CONTAINER}.resources.limits[gpu]: Invalid value: "gpu": must be a standard resource type '
            f'or fully qualified, {CONTAINER}.resources.limits[gpu]: Invalid value: "gpu": must be a '
            "standard resource for containers]"
        ),
    ),
    "a negative number of nodes": (
        {"numNodes": -1},
        {},
        (
            "[spec.parallelism: Invalid value: -1: must be greater than or equal to 0, spec.completions: Invalid "
            "value: -1: must be greater than or equal to 0]"
        ),
    ),
    "a node selector": (
        {},
        {"nodeSelector": {"a b": "x"}},
        f'spec.template.spec.nodeSelector: Invalid value: "a b": {KEY}',
    ),
    "a toleration": (
        {},
        {"tolerations": [{"key": "a", "operator": "Nope"}]},
        'spec.template.spec.tolerations[0].operator: Unsupported value: "Nope": supported values: "Equal", "Exists"',
    ),
    "an affinity": (
        {},
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [NO_OPERATOR]}]}}}},
        (
            f"spec.template.spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator: "
            'Invalid value: "Nope": not a valid selector operator'
        ),
    ),
}


CHECKED_BY_ALL_BACKENDS = (
    "a container without an image",
    "an init container without an image",
    "a mount without its volume",
    "a claim without a name",
    "a variable's name",
    "a negative number of nodes",
)


def assert_refused(client, namespace, target, titles):
    for number, title in enumerate(titles):
        trainer, pod, _ = REFUSED[title]
        create_job(client, namespace, target, f"j{number}", trainer, pod)
    found, expected = {}, {}
    for number, title in enumerate(titles):
        event = wait_for_event(client, namespace, "JobSet", f"j{number}", "JobCreationFailed")
        assert has_event_time(event) == (target.trainer >= (2, 3))
        found[title] = event["message"]
        name, text = f"j{number}-node-0", REFUSED[title][2]
        expected[title] = f'job "{name}" creation failed with error: Job.batch "{name}" is invalid: {text}'
        assert not client.get("TrainJob", namespace, f"j{number}").get("status")
    assert found == expected


@pytest.mark.since("2.2")
def test_rejected_jobs(client, namespace, target):
    """A Job that the API server rejects causes the event JobCreationFailed. The TrainJob has no status."""
    assert_refused(client, namespace, target, CHECKED_BY_ALL_BACKENDS)


@pytest.mark.since("2.2")
@pytest.mark.only("controlplane", "docker", "kubeconfig")  # the laptop cluster checks only the kubelet's fields
def test_rejected_quantities_and_placement(client, namespace, target):
    """Invalid quantities, variables and placement cause the event JobCreationFailed too."""
    assert_refused(client, namespace, target, [title for title in REFUSED if title not in CHECKED_BY_ALL_BACKENDS])


@pytest.mark.before("2.2")
def test_rejected_jobs_before_2_2(client, namespace, target):
    """Before 2.2 a rejected Job causes neither event nor status, only a JobSet without Jobs."""
    create_job(client, namespace, target, "bad", *REFUSED["a request above the limit"][:2])
    client.wait_for("JobSet", namespace, "bad", bool)
    create_job(client, namespace, target, "good")
    client.wait_for("TrainJob", namespace, "good", is_finished)
    assert client.list("Job", namespace, labelSelector=f"{JOBSET}=bad") == []
    assert not client.get("TrainJob", namespace, "bad").get("status")
    assert [item["reason"] for item in client.list("Event", namespace) if item["involvedObject"]["name"] == "bad"] == []


@pytest.mark.since("2.3")
def test_a_patch_for_a_missing_job(client, namespace, target):
    """A patch for a replicated job that the runtime lacks causes an event. The TrainJob has no status."""
    client.create(shell("true", **pod_patch(target.trainer, {"nodeSelector": {"a": "b"}}, ["worker"])), namespace)
    event = wait_for_event(client, namespace, "TrainJob", "job", "TrainJobResourcesCreationFailed")
    field = "spec.replicatedJobs[0].template.spec.template.spec.containers"
    assert event["message"].startswith(
        f'TrainJob resources reconciliation failed: JobSet.jobset.x-k8s.io "job" is invalid: [{field}: Invalid value: '
        f'"null": {field} in body must be of type array: "null", <nil>: Invalid value: null: some validation rules'
    )
    assert has_event_time(event)
    assert not client.get("TrainJob", namespace, "job").get("status")
