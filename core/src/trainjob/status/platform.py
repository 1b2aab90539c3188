"""What there is for TrainJobs in a namespace of a cluster, as far as it tells: facts to judge by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainjob.errors import ClusterError
from trainjob.status.rights import Right
from trainjob.status.runtimes import RuntimeDescription

Objects = Sequence[Mapping[str, Any]]
TRAINER, JOBSET, KUEUE, STORAGE = "trainer.kubeflow.org", "jobset.x-k8s.io", "kueue.x-k8s.io", "storage.k8s.io"
"""API groups: who serves them is installed."""


@dataclass(frozen=True)
class Platform:
    """Each fact is there, or the error that came in its place; nothing is asked of what is not installed.

    Attributes:
        server: the API server's URL.
        namespace: which namespace it is about.
        version: Kubernetes' version.
        user: who asks; empty where the server does not tell.
        groups: the API groups that it serves.
        trainer: the Trainer's version; empty where it does not tell, as up to 2.1.
        spec_fields: the fields of a TrainJob's spec; empty when the server does not tell, None without a Trainer.
        denied: which of [trainjob.status.rights.RIGHTS][] the user has not got, of groups that there are.
        refusal: what came of trying a TrainJob with an initializer that the stock runtime has not got; None when it was
            accepted.
        trial: what came of trying a TrainJob on the stock runtime: itself, as it would be.
        queued: the same in the first of the queues; None without one.
        runtimes: by their kinds.
        jobs: the namespace's TrainJobs.
        queues: its LocalQueues.
        classes: the cluster's StorageClasses.
        claims: the namespace's PersistentVolumeClaims.
    """

    server: str
    namespace: str
    version: str
    user: str
    groups: frozenset[str]
    trainer: str = ""
    spec_fields: frozenset[str] | None = None
    denied: Sequence[Right] | ClusterError = ()
    refusal: ClusterError | None = None
    trial: Mapping[str, Any] | ClusterError | None = None
    queued: Mapping[str, Any] | ClusterError | None = None
    runtimes: Mapping[str, Sequence[RuntimeDescription] | ClusterError] = field(default_factory=dict)
    jobs: Objects | ClusterError = ()
    queues: Objects | ClusterError = ()
    classes: Objects | ClusterError = ()
    claims: Objects | ClusterError = ()
