"""Tests of the category and rule of each message of Kubernetes 1.36, Trainer 2.3, JobSet 0.12 and Kueue 0.17."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainjob.errors import JobFailed, NeverStarted
from trainjob.status import Category, Phase, Verdict, build_outcome, derive_verdict
from trainjob.status.failure_rules import RULES, find_category

JOB = {"metadata": {"name": "tune", "namespace": "ml", "uid": "u1", "creationTimestamp": "2026-01-01T00:00:00Z"}}
IMAGE = "registry.example/team/toomanyrequests:429"  # words that mean something elsewhere
PULL = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": '
OWN = "ghcr.io/trainjob/trainjob:0.1.0"
OWN_PULL = f'failed to pull and unpack image "{OWN}": failed to resolve reference "{OWN}": '
NODES = "0/3 nodes are available: "
PVC = 'persistentvolumeclaim "tickets" not found'
FORBIDDEN = 'Error creating: pods "tune-node-0-0-" is forbidden: '
RECONCILIATION_FAILED = "TrainJob resources reconciliation failed: "
VJOBSET = 'admission webhook "vjobset.kb.io" denied the request: JobSet.jobset.x-k8s.io "tune" is invalid: '
QUOTA = "exceeded quota: small, requested: requests.nvidia.com/gpu=2, used: requests.nvidia.com/gpu=0"
CREATION = (
    f"failed to pull image \"{IMAGE}\": the environment 'trl' could not be created: `uv pip install` failed: error: "
)
COMMAND = 'runc create failed: unable to start container process: exec: "tune": executable file not found in $PATH'

# Reason, text, kind, and what follows: None is waited out, else seconds until waiting is hopeless.
MESSAGES = [
    ("ErrImagePull", PULL + f"{IMAGE}: not found", Category.IMAGE, 60.0),
    ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: {PULL}{IMAGE}: not found', "Image", 60.0),
    (
        "ErrImagePull",
        PULL + "failed to authorize: failed to fetch anonymous token: unexpected status from GET request to "
        "https://ghcr.io/token?scope=repository: 403 Forbidden",
        "Image",
        60.0,
    ),
    (
        "ErrImagePull",
        PULL + "pull access denied, repository does not exist or may require authorization: server message: "
        "insufficient_scope: authorization failed",
        "Image",
        60.0,
    ),
    ("ErrImagePull", PULL + "unexpected status from HEAD request to https://r/v2: 401 Unauthorized", "Image", 60.0),
    ("ErrImagePull", "reading manifest 1 in quay.io/team/x: manifest unknown", "Image", 60.0),
    ("ErrImagePull", "no match for platform in manifest: not found", "Image", 60.0),
    ("Failed", f'Failed to pull image "{IMAGE}": {PULL}{IMAGE}: not found', "Image", 60.0),
    ("ErrImageNeverPull", f'Container image "{IMAGE}" is not present with pull policy of Never', "Image", 60.0),
    ("ContainerCreating", f"Pulling image \"{IMAGE}\": creating the environment 'trl'", "Pulling", None),
    ("ErrImagePull", CREATION + "Failed to fetch: https://a/simple/: dns error", "Pull", None),
    ("ErrImagePull", CREATION + "Connection refused (os error 111)", "Pull", None),
    ("ErrImagePull", CREATION + "No interpreter found for Python >=3.11", "Environment", 60.0),
    ("ErrImagePull", CREATION + "No solution found when resolving dependencies", "Environment", 60.0),
    ("ImagePullBackOff", f"Back-off: ErrImagePull: {CREATION}Hash mismatch for `torch==2.13.0`", "Environment", 60.0),
    ("StartError", "the environment .venv/trl for images that match 'trl' has no folder bin", "Environment", 60.0),
    ("InvalidImageName", 'Failed to apply default image tag "A": couldn\'t parse image name "A"', "ImageName", 0.0),
    (
        "ErrImagePull",
        PULL + "unexpected status code: 429 Too Many Requests - Server message: toomanyrequests: You have "
        "reached your unauthenticated pull rate limit",
        "Pull",
        None,
    ),
    (
        "ErrImagePull",
        PULL + 'failed to do request: Head "https://r/v2": dial tcp: lookup r on 10.0.0.10:53: no such host',
        "Pull",
        None,
    ),
    ("ErrImagePull", OWN_PULL + "unexpected status from GET request: 403 Forbidden", "OwnImage", 60.0),
    ("ImagePullBackOff", f'Back-off pulling image "{OWN}": ErrImagePull: {OWN_PULL}{OWN}: not found', "OwnImage", 60.0),
    ("ErrImagePull", OWN_PULL + "unexpected status from HEAD request: 503 Service Unavailable", "Pull", None),
    ("ErrImagePull", PULL + "unexpected status from HEAD request: 503 Service Unavailable", "Pull", None),
    ("ErrImagePull", "pull QPS exceeded", "Pull", None),
    ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"', "Pull", None),
    ("RegistryUnavailable", "image pull failed for x because the registry is unavailable", "Pull", None),
    ("CreateContainerConfigError", 'secret "hf" not found', "Configuration", 60.0),
    ("CreateContainerConfigError", "couldn't find key token in Secret ml/hf", "Configuration", 60.0),
    ("CreateContainerConfigError", 'configmap "env" not found', "Configuration", 60.0),
    ("CreateContainerConfigError", "failed to sync secret cache: timed out waiting for the condition", None, None),
    ("FailedMount", 'MountVolume.SetUp failed for volume "v" : secret "hf" not found', "Configuration", 60.0),
    (
        "FailedMount",
        'MountVolume.SetUp failed for volume "v" : references non-existent secret key: k',
        "Configuration",
        60,
    ),
    ("FailedMount", 'MountVolume.SetUp failed for volume "v" : mount failed: exit status 32', "Volume", None),
    (
        "FailedAttachVolume",
        'Multi-Attach error for volume "pv" Volume is already used by pod(s) other-0',
        "Volume",
        None,
    ),
    ("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found', "Volume", None),
    (
        "RunContainerError",
        f"failed to create containerd task: failed to create shim task: OCI runtime: {COMMAND}",
        "Command",
        60.0,
    ),
    ("StartError", f"failed to create containerd task: {COMMAND}", "Command", 60.0),
    ("CreateContainerError", "failed to generate container spec: no command specified", "Command", 60.0),
    ("CreateContainerError", "context deadline exceeded", None, None),
    (
        "Unschedulable",
        f"{NODES}3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available",
        "Unschedulable",
        None,
    ),
    ("FailedScheduling", f"{NODES}3 node(s) didn't match Pod's node affinity/selector.", "Unschedulable", None),
    ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates", "Unschedulable", None),
    ("Unschedulable", f"{NODES}{PVC}. not found", "Claim", 60.0),
    ("Unschedulable", f"{NODES}pod has unbound immediate PersistentVolumeClaims. not found", "Volume", None),
    ("Unschedulable", f"{NODES}3 node(s) had volume node affinity conflict.", "Volume", None),
    ("FailedCreate", FORBIDDEN + QUOTA, "Quota", None),
    (
        "JobCreationFailed",
        'jobs.batch "tune-node-0" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1',
        "Quota",
        None,
    ),
    ("FailedCreate", FORBIDDEN + "failed quota: small: must specify requests.cpu for: node", "Resources", 60.0),
    (
        "FailedCreate",
        FORBIDDEN + 'error looking up service account ml/robot: serviceaccount "robot" not found',
        "Refused",
        60.0,
    ),
    (
        "FailedCreate",
        FORBIDDEN + 'violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
        "PodSecurity",
        60.0,
    ),
    ("FailedCreate", 'Error creating: admission webhook "pods.example" denied the request: no', "Refused", 60.0),
    (
        "FailedCreate",
        (
            'Error creating: Internal error occurred: failed calling webhook "pods.example": failed to call '
            'webhook: Post "https://x": connection refused'
        ),
        "Webhook",
        None,
    ),
    (
        "TrainJobResourcesCreationFailed",
        RECONCILIATION_FAILED
        + 'Internal error occurred: failed calling webhook "mjobset.kb.io": failed to call webhook',
        "Webhook",
        None,
    ),
    (
        "TrainJobResourcesCreationFailed",
        RECONCILIATION_FAILED + VJOBSET + '[spec.replicatedJobs[0].name: Invalid value: "x": JobSet name is '
        "too long, job names generated for this JobSet will exceed 63 characters]",
        "Invalid",
        0.0,
    ),
    (
        "JobCreationFailed",
        'Job.batch "tune-node-0" is invalid: spec.template.spec.containers[0].image: Required value',
        "Invalid",
        0.0,
    ),
    (
        "TrainJobResourcesCreationFailed",
        RECONCILIATION_FAILED + "unknown (patch jobsets.jobset.x-k8s.io tune)",
        None,
        None,
    ),
    ("CrashLoopBackOff", "back-off 10s restarting failed container=node pod=tune-node-0-0-x_ml(u)", "CrashLoop", None),
    ("Evicted", "The node was low on resource: memory. ", "Infrastructure", None),
    (
        "OutOfnvidia.com/gpu",
        "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu",
        "Infrastructure",
        None,
    ),
    (
        "PreemptionByScheduler",
        "default-scheduler: preempting to accommodate a higher priority pod",
        "Infrastructure",
        None,
    ),
    ("DeletionByPodGC", "PodGC: node no longer exists", "Infrastructure", None),
    ("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", "Infrastructure", None),
    ("EvictionByEvictionAPI", "Eviction API: evicting", "Infrastructure", None),
    ("OOMKilled", "", "OutOfMemory", None),
    ("DeadlineExceeded", "TrainJob exceeded its active deadline", "Deadline", None),
    (
        "Pending",
        "couldn't assign flavors to pod set node: insufficient unused quota for cpu in flavor cpu, 1 more needed",
        None,
        None,
    ),
    (
        "Pending",
        (
            "couldn't assign flavors to pod set node: insufficient quota for cpu in flavor cpu, previously considered "
            "podsets requests (0) + current podset request (3) > maximum capacity (1)"
        ),
        "BeyondQueue",
        None,
    ),
    (
        "Pending",
        "couldn't assign flavors to pod set node: resource nvidia.com/gpu unavailable in ClusterQueue",
        "BeyondQueue",
        None,
    ),
    ("Inadmissible", "LocalQueue nope doesn't exist", "NoQueue", None),
    ("Inadmissible", "ClusterQueue nonesuch doesn't exist", "NoQueue", None),
    ("Inadmissible", "ClusterQueue held is inactive", "NoQueue", None),
    ("LocalQueueStopped", "The LocalQueue is stopped", "NoQueue", None),
    ("Deactivated", "The workload is deactivated", "Deactivated", None),
    ("FailedJobs", "jobset failed due to one or more job failures (first failed job: tune-node-0)", None, None),
    ("Error", "ValueError: file not found", None, None),
]


@pytest.mark.parametrize(("reason", "message", "kind", "grace"), MESSAGES)
def test_each_message_has_its_category(reason, message, kind, grace):
    category = find_category(reason, message)
    assert category == kind
    assert grace == (RULES[category].grace if category else None)


def test_the_table_has_one_rule_for_each_category():
    assert set(RULES) == set(Category)
    for rule in RULES.values():
        assert issubclass(rule.error, JobFailed)
        if rule.grace is not None:  # the wait is hopeless, so the error must say what to do
            assert issubclass(rule.error, NeverStarted)
            assert not rule.retryable
            assert rule.advice


@given(st.text(), st.text())
def test_any_message_has_a_category_with_a_rule_or_none(reason, message):
    category = find_category(reason, message)
    assert category is None or category in RULES


def test_a_verdict_that_ends_a_job_early_has_the_category_of_its_finding():
    """The outcome gets the same category as the finding, although the verdict has only the finding's message."""
    for reason, message, kind, grace in MESSAGES:
        if grace is not None:
            outcome = build_outcome(JOB, Verdict(Phase.FAILED, reason, f"node-0: {message}", "node"))
            assert outcome.category == kind
            with pytest.raises(NeverStarted):
                outcome.raise_for_failure()
    assert derive_verdict(JOB).phase is Phase.PENDING
