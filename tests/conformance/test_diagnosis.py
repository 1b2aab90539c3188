"""The reasons why a job does not start, as they are reported to its waiters."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone

import pytest

from tests.conformance.runtimes import create_own_runtime, replicated_job
from tests.conformance.unstartable_jobs import claim_of_class, wait_for_event
from tests.support.diagnosed_jobs import diagnosis_row, own_runtime_job, shell_job
from tests.support.kubernetes_client import path_of
from tests.support.polling import wait_until
from tests.support.trainjobs import IMAGE
from trainjob import RunKey, SecretKeyReference
from trainjob.errors import DeadlineExceeded, ImageUnavailable, NeverStarted, WaitTimeout
from trainjob.inspection.description import describe
from trainjob.lifecycle import Limits, cancel, submit, wait, wait_async
from trainjob.status import Category

# Cases that need a whole control plane, or that take more than a minute, run on one back end.
only_real = pytest.mark.only("controlplane-2.3")


def with_volume(**source):
    return {"volumes": [{"name": "v", "source": source, "mount_path": "/v"}]}


# -- waiting cannot help: the job is ended ----------------------------------------------------------------------------

FAILING_JOBS = {
    "image not found": (shell_job(image="does-not-exist.invalid/x:1"), ImageUnavailable, "x:1: not found"),
    "missing Secret": (
        shell_job(env={"A": SecretKeyReference(name="nope", key="k")}),
        NeverStarted,
        'CreateContainerConfigError: node-0: secret "nope" not found',
    ),
    "missing Secret of a volume": (
        shell_job(job=with_volume(secret={"secretName": "nope"})),
        NeverStarted,
        "FailedMount: node-0: MountVolume.SetUp failed",
    ),
    "missing claim": (
        shell_job(job={"workspace": "nope"}),
        NeverStarted,
        'Unschedulable: node-0: 0/1 nodes are available: persistentvolumeclaim "nope" not found',
    ),
    "pods refused (service account)": (
        shell_job(job={"placement": {"service_account_name": "nope"}}),
        NeverStarted,
        'serviceaccount "nope" not found',
    ),
}


@only_real
def test_a_missing_object_ends_the_job(client, cluster, namespace, target, job_group, evidence):
    """A missing object that does not appear within a minute ends the wait and the job with a typed error."""
    waiters = {name: job_group.submit(name, job) for name, (job, _, _) in FAILING_JOBS.items()}
    for name, (_, expected, text) in FAILING_JOBS.items():
        error = waiters[name].job_error()
        assert (type(error), error.retryable) == (expected, False), error
        assert text in str(error)
        assert error.hint
        client.wait_until_deleted("TrainJob", namespace, waiters[name].reference.name)
        evidence("diagnosis", **diagnosis_row(name, target.backend, error.outcome.message, error))


def test_an_invalid_image_name_ends_the_job_at_once(client, namespace, target, job_group, evidence):
    """An invalid image name ends the wait and the job at once."""
    waiter = job_group.submit("image name", shell_job(image="Not/A_Name"))
    error = waiter.job_error(300)
    assert (type(error), error.retryable) == (ImageUnavailable, False)
    assert "invalid reference format" in str(error)
    client.wait_until_deleted("TrainJob", namespace, waiter.reference.name)
    evidence("diagnosis", **diagnosis_row("image name", target.backend, error.outcome.message, error))


@pytest.mark.slow
@pytest.mark.since("2.3")  # before, the Trainer's event has no reason
def test_name_too_long(client, namespace, target, job_group, evidence):
    """A job whose pod names are too long is ended as soon as its events are read."""
    long = replicated_job("a-replicated-job-whose-name-has-so-many-letters-that-none-fit")
    create_own_runtime(client, namespace, replicated_job(), long)
    waiter = job_group.submit("name too long", own_runtime_job())
    error = waiter.job_error(300)
    assert (type(error), error.retryable) == (NeverStarted, False)
    assert "is too long" in str(error)
    client.wait_until_deleted("TrainJob", namespace, waiter.reference.name)
    evidence("diagnosis", **diagnosis_row("name too long", target.backend, error.outcome.message, error))


def test_waiting_in_an_event_loop(client, cluster, namespace, unique):
    """A waiter in an event loop, such as Airflow's triggerer, gets the typed error too."""
    reference = submit(cluster, shell_job(image="Not/A_Name"), RunKey("conformance", "diagnosis", "loop", unique))
    outcome = asyncio.run(wait_async(cluster, reference))
    with pytest.raises(ImageUnavailable, match="invalid reference format"):
        outcome.raise_for_failure()
    client.wait_until_deleted("TrainJob", namespace, reference.name)


def test_a_secret_that_appears_in_time(client, namespace, job_group):
    """A Secret that is created a moment later does not fail the job: it runs and is Complete."""
    waiter = job_group.submit("late", shell_job('test "$A" = b', env={"A": SecretKeyReference(name="late", key="k")}))
    waiter.wait_for_report('secret "late" not found')
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"}, "stringData": {"k": "b"}}
    client.create(secret, namespace)
    assert waiter.outcome.result(300).succeeded


def test_events_of_an_earlier_job(client, cluster, namespace, job_group):
    """Events of an earlier job with the same name are not reported for a later job."""
    earlier = job_group.submit("again", shell_job(job={"workspace": "nope"}))
    event = wait_for_event(client, namespace, "Pod", f"{earlier.reference.name}-node-0-0-", "FailedScheduling")
    cancel(cluster, earlier.reference)
    client.wait_until_deleted("JobSet", namespace, earlier.reference.name)
    seconds = "%Y-%m-%dT%H:%M:%SZ"
    wait_until(lambda: datetime.now(timezone.utc).strftime(seconds) > event["metadata"]["creationTimestamp"])
    later = job_group.submit("again", shell_job("exit 3"))
    assert (later.reference.name, later.reference.uid != earlier.reference.uid) == (earlier.reference.name, True)
    assert "nope" not in str(later.job_error(300))


# -- waiting may help: the reason is reported -------------------------------------------------------------------------

PENDING_JOBS = {
    "too many GPUs": (
        shell_job(resources_per_node={"gpu": 64}),
        "Unschedulable: 0/1 nodes are available: 1 Insufficient",
    ),
    "node selector": (
        shell_job(job={"placement": {"node_selector": {"nope": "x"}}}),
        "didn't match Pod's node affinity/selector",
    ),
    "claim that is not bound": (
        shell_job(job={"workspace": "unbound"}),
        "pod has unbound immediate PersistentVolumeClaims",
    ),
}


def test_a_pending_job_is_kept(client, cluster, namespace, target, job_group, evidence):
    """A missing node or volume is reported while the job waits. The job is kept, because others may provide it."""
    client.create(claim_of_class("unbound", "nope"), namespace)
    waiters = {name: job_group.submit(name, job) for name, (job, _) in PENDING_JOBS.items()}
    for name, (_, text) in PENDING_JOBS.items():
        report = waiters[name].wait_for_report(text)
        evidence("diagnosis", **diagnosis_row(name, target.backend, report))
    reference = waiters["too many GPUs"].reference
    with pytest.raises(WaitTimeout, match=r"Insufficient nvidia.com/gpu.*starting time.*deleted") as raised:
        wait(cluster, reference, limits=Limits(starting=timedelta(seconds=3)))
    assert "request fewer resources" in raised.value.hint
    for waiter in waiters.values():
        cancel(cluster, waiter.reference)
        assert not waiter.outcome.result(300).succeeded


@pytest.mark.slow
@pytest.mark.since("2.2")  # an earlier TrainJob has no deadline
def test_a_sidecar_that_does_not_end(client, cluster, namespace, target, job_group, evidence):
    """A sidecar that outlives the training is reported in the log, in the description and at both kinds of deadline."""
    replicated = replicated_job()
    replicated["template"]["spec"]["template"]["spec"]["containers"].append(
        {"name": "istio-proxy", "image": IMAGE, "command": ["sleep", "600"]}
    )
    create_own_runtime(client, namespace, replicated)
    waiter = job_group.submit("sidecar", own_runtime_job())
    late = job_group.submit("deadline", own_runtime_job(job={"deadline": timedelta(seconds=75)}))
    text = "node-0: Sidecar: container node has succeeded; its pod still runs other containers: istio-proxy"
    report = waiter.wait_for_report(text)
    assert "labels={'sidecar.istio.io/inject': 'false'}" in report
    evidence("diagnosis", **diagnosis_row("sidecar", target.backend, report))
    reference = waiter.reference
    description = describe(cluster, cluster.get_trainjob(reference.name, namespace))
    assert description.summary.message == text
    assert description.hints[0].startswith(f"{text}: keep the sidecar out of the step's pods")
    error = late.job_error()
    assert (type(error), error.outcome.category) == (DeadlineExceeded, Category.SIDECAR)
    assert text in str(error)
    with pytest.raises(WaitTimeout, match="istio-proxy") as raised:
        wait(cluster, reference, limits=Limits(total=timedelta(seconds=65)))
    assert "keep the sidecar out" in raised.value.hint


@only_real
def test_quota(client, cluster, namespace, target, job_group, evidence):
    """A job that exceeds a ResourceQuota waits, and the reason is reported. It runs when the quota is deleted."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "small"}}
    client.create({**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "1"}}}, namespace)
    client.wait_for("ResourceQuota", namespace, "small", lambda one: one.get("status", {}).get("hard"))
    waiter = job_group.submit("quota", shell_job(resources_per_node={"gpu": 2}))
    evidence("diagnosis", **diagnosis_row("quota", target.backend, waiter.wait_for_report("exceeded quota: small")))
    assert client.request("DELETE", path_of("ResourceQuota", namespace, "small")).ok
    assert waiter.outcome.result(90).succeeded


@only_real
def test_unavailable_webhook(client, namespace, unique, target, job_group, evidence):
    """A webhook that does not respond is reported. The job runs when the webhook is removed."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    webhook = {
        "name": "pods.example.org",
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "clientConfig": {"url": "https://127.0.0.1:1/pods"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    assert client.request("POST", path, {**body, "metadata": {"name": unique}, "webhooks": [webhook]}).code == 201
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    try:
        wait_until(
            lambda: (
                "failed calling webhook" in client.request("POST", path_of("Pod", namespace), pod, dryRun="All").message
            )
        )
        waiter = job_group.submit("webhook", shell_job())
        evidence(
            "diagnosis",
            **diagnosis_row("webhook down", target.backend, waiter.wait_for_report("failed calling webhook")),
        )
    finally:
        assert client.request("DELETE", f"{path}/{unique}").ok
    assert waiter.outcome.result(90).succeeded


@pytest.fixture
def workloads(client):
    """Create the CRD of Kueue's Workload without Kueue; the test writes the Workloads."""
    names = {"kind": "Workload", "listKind": "WorkloadList", "plural": "workloads", "singular": "workload"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1beta2", "served": True, "storage": True, "schema": schema}
    spec = {"group": "kueue.x-k8s.io", "scope": "Namespaced", "names": names, "versions": [version]}
    path, name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "workloads.kueue.x-k8s.io"
    # Kueue's API group is protected: a CRD in it needs this annotation.
    meta = {"name": name, "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}}
    body = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}
    assert client.request("POST", path, body).code == 201
    yield "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"
    assert client.request("DELETE", f"{path}/{name}").ok


@only_real
def test_queued_job(client, namespace, workloads, target, job_group, evidence, tmp_path):
    """Kueue's own message is reported for a queued job; here the test writes it in Kueue's place."""
    text = "couldn't assign flavors to pod set node: insufficient unused quota for cpu in flavor cpu, 1 more needed"
    reserved = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": text}

    def suspend_and_explain(reference):
        client.patch("TrainJob", namespace, reference.name, {"spec": {"suspend": True}})
        meta = {"name": f"trainjob-{reference.name}-1", "labels": {"kueue.x-k8s.io/job-uid": reference.uid}}
        kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
        workload = {**kind, "metadata": meta, "status": {"conditions": [reserved]}}
        wait_until(lambda: client.request("POST", workloads.format(namespace), workload).code == 201)

    script = f"test -e {tmp_path}/admitted || exec sleep 600"  # it starts before it is suspended
    waiter = job_group.submit("queued", shell_job(script, job={"queue": "gpu-team"}), suspend_and_explain)
    report = waiter.wait_for_report("insufficient unused quota for cpu")
    assert "waiting for quota in queue gpu-team" in report
    evidence("diagnosis", **diagnosis_row("no quota in Kueue", target.backend, report))
    (tmp_path / "admitted").touch()
    client.patch("TrainJob", namespace, waiter.reference.name, {"spec": {"suspend": False}})
    assert waiter.outcome.result(300).succeeded
