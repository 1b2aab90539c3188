"""The training containers of a job, for v1 jobs and TrainJobs in the same form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trainjob.spec.redaction import redact
from trainjob.status.nested_fields import get_int, get_list, get_mapping, get_str
from trainjob.status.pods import container_statuses, rank_of, step_of
from trainjob.status.verdict import INITIALIZERS

__all__ = ["Node", "list_trainjob_nodes", "list_v1_nodes"]

# Training operator 1.9, pkg/apis/kubeflow.org/v1/common_types.go.
_INDEX = "training.kubeflow.org/replica-index"
# The MPI Operator (0.8 pkg/controller/mpi_job_controller.go, defaultLabels) sets only the second label.
_ROLES = ("training.kubeflow.org/replica-type", "training.kubeflow.org/job-role")
# Names of the training containers: *_types.go of training-operator 1.9, and Trainer 2.3 manifests/base/runtimes.
_CONTAINERS = ("pytorch", "mpi", "xgboost", "jax", "tensorflow", "paddle", "node")
_LEADERS = ("launcher", "master", "chief")
_MOST_PODS = 150_000  # limit of a cluster (Kubernetes 1.36, considerations for large clusters)


@dataclass(frozen=True)
class Node:
    """The training container of one pod.

    Attributes:
        role: role of the pod, such as `Master`, `Worker` or `node`.
        index: index within the role.
        container: the container in the pod, or in the job's spec if there are no pods.
        status: container status of the kubelet; empty without a pod.
    """

    role: str
    index: int
    container: Mapping[str, Any]
    status: Mapping[str, Any]

    @cached_property
    def redacted_container(self) -> Mapping[str, Any]:
        """The container for output, with `***` for values that could be secrets."""
        return get_mapping(redact(self.container))

    def __str__(self) -> str:
        return f"{self.role} {self.index}"


def list_v1_nodes(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Return the nodes of a v1 job, leaders first.

    Without pods, the nodes are derived from the job's spec.
    """
    found = [_node(pod, _role(pod), get_int(pod, "metadata", "labels", _INDEX)) for pod in pods]
    return sorted(found or _nodes_from_v1_spec(job), key=_leader_first)


def list_trainjob_nodes(train_job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> list[Node]:
    """Return the nodes of a TrainJob that train.

    A pod that has been replaced does not count. Without pods, the nodes are derived from the TrainJob's spec, as far as
    it has their values.
    """
    newest = {}
    for pod in sorted(pods, key=lambda pod: get_str(pod, "metadata", "creationTimestamp")):
        if step_of(pod) not in INITIALIZERS:
            newest[step_of(pod), rank_of(pod)] = pod
    found = [_node(pod, *key) for key, pod in newest.items()]
    return sorted(found or _nodes_from_trainjob_spec(train_job), key=_leader_first)


def _node(pod: Mapping[str, Any], role: str, index: int) -> Node:
    container = _find_training_container(get_list(pod, "spec", "containers"))
    statuses = (one for one in container_statuses(pod) if get_str(one, "name") == get_str(container, "name"))
    return Node(role, index, container, next(statuses, {}))


def _role(pod: Mapping[str, Any]) -> str:
    found = (get_str(pod, "metadata", "labels", label) for label in _ROLES)
    return next(filter(None, found), "").capitalize()


def _find_training_container(containers: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    named = (one for one in containers if get_str(one, "name") in _CONTAINERS)
    return next(named, containers[0] if containers else {})


def _nodes_from_v1_spec(job: Mapping[str, Any]) -> Iterator[Node]:
    spec = get_mapping(job, "spec")
    for name in spec:
        for role, replica in get_mapping(spec, name).items() if str(name).endswith("ReplicaSpecs") else ():
            count = get_int(replica, "replicas") if "replicas" in get_mapping(replica) else 1
            for index in range(min(count, _MOST_PODS)):
                yield Node(
                    str(role), index, _find_training_container(get_list(replica, "template", "spec", "containers")), {}
                )


def _nodes_from_trainjob_spec(train_job: Mapping[str, Any]) -> Iterator[Node]:
    trainer = get_mapping(train_job, "spec", "trainer")
    container = {name: trainer[name] for name in ("image", "command", "args", "env") if name in trainer}
    for index in range(min(get_int(trainer, "numNodes") or 1, _MOST_PODS)):
        yield Node("node", index, {**container, "resources": get_mapping(trainer, "resourcesPerNode")}, {})


def _leader_first(node: Node) -> tuple[bool, str, int]:
    return node.role.lower() not in _LEADERS, node.role, node.index
