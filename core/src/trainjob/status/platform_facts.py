"""Facts about what a cluster provides for TrainJobs in a namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainjob.errors import ClusterError
from trainjob.status.permissions import Permission
from trainjob.status.runtime_description import RuntimeDescription

Objects = Sequence[Mapping[str, Any]]
TRAINER, JOBSET, KUEUE, STORAGE = "trainer.kubeflow.org", "jobset.x-k8s.io", "kueue.x-k8s.io", "storage.k8s.io"
"""API groups; a product is installed if the API server serves its group."""


@dataclass(frozen=True)
class PlatformFacts:
    """Facts about a cluster and a namespace, as far as the cluster reports them.

    Each fact is a value, or the error of its request. Nothing is requested from products that are not installed.

    Attributes:
        server: URL of the API server.
        namespace: namespace of these facts.
        kubernetes_version: version of Kubernetes.
        user: name of the user; empty if the server does not report it.
        api_groups: API groups that the server serves.
        trainer_version: version of the Trainer; empty if the Trainer does not report it, as up to 2.1.
        spec_fields: fields of a TrainJob's spec; empty if the server does not publish them, None without a Trainer.
        denied_permissions: permissions of [trainjob.status.permissions.PERMISSIONS][] that the user does not have, of
            the served groups.
        invalid_trial_error: error of a trial TrainJob with an initializer that the stock runtime does not have; None if
            the TrainJob was accepted.
        trial_result: the TrainJob that a trial creation with the stock runtime returned, or the error.
        queued_trial_result: the same for a trial in the first of the queues; None without a queue.
        runtimes: runtimes by their kinds.
        jobs: TrainJobs of the namespace.
        queues: LocalQueues of the namespace.
        cluster_queues: ClusterQueues of the cluster; nothing is requested if there are no LocalQueues.
        flavors: ResourceFlavors of the cluster, in the same way.
        topologies: Topologies of the cluster, in the same way.
        storage_classes: StorageClasses of the cluster.
        claims: PersistentVolumeClaims of the namespace.
        namespace_object: the namespace, whose labels may change its pods.
        resource_quotas: ResourceQuotas of the namespace.
        limit_ranges: LimitRanges of the namespace.
    """

    server: str
    namespace: str
    kubernetes_version: str
    user: str
    api_groups: frozenset[str]
    trainer_version: str = ""
    spec_fields: frozenset[str] | None = None
    denied_permissions: Sequence[Permission] | ClusterError = ()
    invalid_trial_error: ClusterError | None = None
    trial_result: Mapping[str, Any] | ClusterError | None = None
    queued_trial_result: Mapping[str, Any] | ClusterError | None = None
    runtimes: Mapping[str, Sequence[RuntimeDescription] | ClusterError] = field(default_factory=dict)
    jobs: Objects | ClusterError = ()
    queues: Objects | ClusterError = ()
    cluster_queues: Objects | ClusterError = ()
    flavors: Objects | ClusterError = ()
    topologies: Objects | ClusterError = ()
    storage_classes: Objects | ClusterError = ()
    claims: Objects | ClusterError = ()
    namespace_object: Mapping[str, Any] | ClusterError = field(default_factory=dict)
    resource_quotas: Objects | ClusterError = ()
    limit_ranges: Objects | ClusterError = ()
