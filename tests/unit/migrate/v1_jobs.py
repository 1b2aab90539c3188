"""PyTorchJobs for tests: a small job, and a job with every field of a PyTorchJob and of its pods."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Job = dict[str, Any]


def pytorch_job(
    *,
    workers: int = 1,
    master: bool = True,
    name: str = "mnist",
    pod: Mapping[str, Any] | None = None,
    **container: Any,
) -> Job:
    """Return a PyTorchJob whose replicas have the same template.

    `container` has fields of the training container.
    """
    training = {"name": "pytorch", "image": "example.com/mnist:1", **container}
    template = {"spec": {**(pod or {}), "containers": [training]}}
    replicas: dict[str, Any] = {"Master": {"replicas": 1, "template": copy.deepcopy(template)}} if master else {}
    if workers:
        replicas["Worker"] = {"replicas": workers, "template": copy.deepcopy(template)}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": replicas},
    }


def with_spec(job: Job, **spec: Any) -> Job:
    """Return the same job with more fields in its spec."""
    return {**job, "spec": {**job["spec"], **spec}}


# Values by which a test can distinguish the fields.
CONTAINER: Mapping[str, Any] = {
    "image": "example.com/every-field:1",
    "command": ["python", "train.py"],
    "args": ["--epochs", "3"],
    "workingDir": "/src",
    "env": [
        {"name": "LR", "value": "0.125"},
        {"name": "HF", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "t"}}},
    ],
    "envFrom": [{"configMapRef": {"name": "settings"}}],
    "ports": [{"containerPort": 23456, "name": "pytorchjob-port"}, {"containerPort": 9400, "name": "metrics"}],
    "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1", "memory": "1Gi"}},
    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "data", "mountPath": "/more", "subPath": "more"}],
    "volumeDevices": [{"name": "block", "devicePath": "/dev/block"}],
    "livenessProbe": {"exec": {"command": ["alive"]}},
    "readinessProbe": {"tcpSocket": {"port": 9401}},
    "startupProbe": {"httpGet": {"path": "/started", "port": 9402}},
    "lifecycle": {"preStop": {"exec": {"command": ["stop-it"]}}},
    "terminationMessagePath": "/dev/last-words",
    "terminationMessagePolicy": "FallbackToLogsOnError",
    "imagePullPolicy": "Always",
    "securityContext": {"runAsUser": 1234},
    "stdin": True,
    "stdinOnce": True,
    "tty": True,
}
POD: Mapping[str, Any] = {
    "activeDeadlineSeconds": 7201,
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"apart": "yes"}}, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    },
    "automountServiceAccountToken": False,
    "dnsConfig": {"searches": ["search.example.com"]},
    "dnsPolicy": "ClusterFirstWithHostNet",
    "enableServiceLinks": False,
    "hostAliases": [{"ip": "10.9.8.7", "hostnames": ["alias.example.com"]}],
    "hostIPC": True,
    "hostNetwork": True,
    "hostPID": True,
    "hostname": "dropped",
    "imagePullSecrets": [{"name": "registry"}],
    "initContainers": [{"name": "fetch", "image": "example.com/fetch:1"}],
    "nodeName": "node-7",
    "nodeSelector": {"pool": "gpu-pool"},
    "preemptionPolicy": "Never",
    "priorityClassName": "system-node-critical",
    "readinessGates": [{"conditionType": "example.com/gate"}],
    "restartPolicy": "Always",
    "runtimeClassName": "nvidia-runtime",
    "schedulerName": "volcano",
    "securityContext": {"fsGroup": 2345},
    "serviceAccountName": "trainer-account",
    "setHostnameAsFQDN": False,
    "shareProcessNamespace": False,
    "subdomain": "dropped",
    "terminationGracePeriodSeconds": 77,
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "example.com/rack",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"spread": "yes"}},
        }
    ],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "corpus"}},
        {"name": "block", "persistentVolumeClaim": {"claimName": "raw-disk"}},
    ],
}
RUN_POLICY: Mapping[str, Any] = {
    "activeDeadlineSeconds": 3601,
    "backoffLimit": 5,
    "cleanPodPolicy": "None",
    "managedBy": "kubeflow.org/training-operator",
    "suspend": True,
    "ttlSecondsAfterFinished": 602,
    "schedulingPolicy": {
        "minAvailable": 3,
        "queue": "volcano-queue",
        "minResources": {"cpu": "3"},
        "priorityClass": "system-cluster-critical",
        "scheduleTimeoutSeconds": 123,
    },
}
ELASTIC: Mapping[str, Any] = {
    "minReplicas": 1,
    "maxReplicas": 4,
    "rdzvBackend": "etcd",
    "rdzvHost": "etcd.example.com",
    "rdzvPort": 2379,
    "rdzvId": "meeting",
    "rdzvConf": [{"key": "join_timeout", "value": "345"}],
    "standalone": False,
    "maxRestarts": 9,
    "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}],
}


def every_field() -> Job:
    """Return a PyTorchJob with every field, as an API server returns it."""
    job = pytorch_job(workers=2, name="every-field", pod=POD, **CONTAINER)
    job["metadata"] |= {
        "namespace": "team-a",
        "labels": {"kueue.x-k8s.io/queue-name": "gpu-queue", "team": "language"},
        "annotations": {"note": "kept-note", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        "uid": "u-1",
        "resourceVersion": "12",
        "generation": 1,
        "creationTimestamp": "2025-01-01T00:00:00Z",
        "managedFields": [{"manager": "kubectl"}],
        "ownerReferences": [{"kind": "Trial", "name": "t", "uid": "u"}],
        "finalizers": ["example.com/wait"],
    }
    for replicas in job["spec"]["pytorchReplicaSpecs"].values():
        replicas["restartPolicy"] = "ExitCode"
        replicas["template"]["metadata"] = {
            "labels": {"cost-center": "ml-7", "training.kubeflow.org/job-name": "every-field"},
            "annotations": {"sidecar.istio.io/inject": "off-7"},
            "creationTimestamp": None,
        }
        replicas["template"]["spec"]["containers"].append({"name": "metrics", "image": "example.com/sidecar:1"})
    status = {"conditions": [{"type": "Succeeded", "status": "True"}], "replicaStatuses": {"Master": {"succeeded": 1}}}
    return {
        **with_spec(job, nprocPerNode="2", runPolicy=copy.deepcopy(RUN_POLICY), elasticPolicy=copy.deepcopy(ELASTIC)),
        "status": status,
    }
