"""Realistic API objects as input for damage.

They are shortened objects of Kubernetes 1.36 with Trainer 2.3.
"""

from __future__ import annotations

from typing import Any

TIME = "2026-01-01T00:00:00Z"
RUN_KEY = '{"engine":"airflow","map_index":"","origin":"","run":"r","task":"t","workflow":"w"}'


def _condition(
    kind: str, status: str = "True", message: str = "jobset failed due to one or more job failures"
) -> dict[str, str]:
    return {"type": kind, "status": status, "reason": "FailedJobs", "message": message, "lastTransitionTime": TIME}


METADATA = {
    "name": "tune-0a1b2c3d",
    "namespace": "team",
    "uid": "5f0c1a2e-0000-4000-8000-000000000001",
    "resourceVersion": "4711",
    "creationTimestamp": TIME,
    "labels": {
        "app.kubernetes.io/managed-by": "trainjob",
        "trainjob.dev/run-key": "0123456789abcdef",
        "trainjob.dev/attempt": "2",
        "kueue.x-k8s.io/queue-name": "gpu",
    },
    "annotations": {"trainjob.dev/run-key": RUN_KEY, "trainjob.dev/spec-hash": "00112233", "trainjob.dev/renewal": ""},
}
TRAINJOB: dict[str, Any] = {
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": METADATA,
    "spec": {"suspend": False, "runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
    "status": {
        "conditions": [
            _condition("Suspended", "False"),
            _condition("Failed", "True", "jobset failed (first failed job: tune-0a1b2c3d-node-0)"),
        ],
        "jobsStatus": [
            {"name": name, "active": 1, "ready": 1, "succeeded": 0, "failed": 0, "suspended": 0}
            for name in ("dataset-initializer", "node")
        ],
    },
}
RUNNING_TRAINJOB = {**TRAINJOB, "status": {**TRAINJOB["status"], "conditions": [_condition("Suspended", "False")]}}
_TERMINATED = {"exitCode": 137, "reason": "OOMKilled", "message": "killed", "finishedAt": TIME, "startedAt": TIME}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "tune-0a1b2c3d-node-0-0-x7z2p",
        "namespace": "team",
        "uid": "5f0c1a2e-0000-4000-8000-000000000002",
        "resourceVersion": "4712",
        "creationTimestamp": TIME,
        "labels": {
            "jobset.sigs.k8s.io/jobset-name": "tune-0a1b2c3d",
            "jobset.sigs.k8s.io/replicatedjob-name": "node",
            "batch.kubernetes.io/job-completion-index": "1",
        },
    },
    "spec": {"restartPolicy": "OnFailure", "nodeName": "n1", "volumes": []},
    "status": {
        "phase": "Running",
        "reason": "Evicted",
        "message": "the node was low on memory",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"},
            {"type": "Ready", "status": "True"},
        ],
        "initContainerStatuses": [{"name": "init", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}],
        "containerStatuses": [
            {"name": "node", "restartCount": 3, "state": {"terminated": _TERMINATED}, "lastState": {}},
            {
                "name": "side",
                "restartCount": 1,
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}},
                "lastState": {"terminated": _TERMINATED},
            },
        ],
    },
}
EVENT = {
    "metadata": {"name": "e", "namespace": "team", "creationTimestamp": TIME},
    "involvedObject": {"kind": "Pod", "name": "tune-0a1b2c3d-node-0-0-x7z2p", "uid": "u"},
    "type": "Warning",
    "reason": "FailedScheduling",
    "message": "0/3 nodes are available",
    "lastTimestamp": TIME,
    "eventTime": None,
}
