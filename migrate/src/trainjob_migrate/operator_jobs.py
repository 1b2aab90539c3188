"""The jobs of the Training Operator v1 and the MPI Operator on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainjob.client import Cluster
from trainjob.client.resources import Resource
from trainjob.errors import NotFound, PermissionDenied

# Training Operator 1.9, manifests/base/crds; MPI Operator 0.6 and later serves mpijobs as v2beta1 only. The first
# version of a kind that the cluster serves is used, because a CRD returns the same objects in all of its versions.
_VERSIONS = {
    "PyTorchJob": ("v1",),
    "MPIJob": ("v2beta1", "v1"),
    "XGBoostJob": ("v1",),
    "JAXJob": ("v1",),
    "TFJob": ("v1",),
    "PaddleJob": ("v1",),
}
# Training Operator 1.9, pkg/apis/kubeflow.org/v1/common_types.go; the MPI Operator uses the same label.
_NAME_LABEL = "training.kubeflow.org/job-name"
_PODS = Resource("pods", "/api/v1", "")


@dataclass
class OperatorJobList:
    """The v1 jobs of a cluster.

    Attributes:
        jobs: jobs of all kinds.
        unserved_kinds: kinds that the cluster does not serve.
        forbidden_kinds: kinds that the user may not list.
    """

    jobs: list[dict[str, Any]] = field(default_factory=list)
    unserved_kinds: list[str] = field(default_factory=list)
    forbidden_kinds: list[str] = field(default_factory=list)


class OperatorJobs:
    """Read-only access to the v1 jobs of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        """Store the cluster without sending a request.

        Args:
            cluster: the cluster that has the jobs.
        """
        self._cluster = cluster

    def list_all(self, namespace: str | None) -> OperatorJobList:
        """List the jobs of all kinds.

        Args:
            namespace: the namespace; None for all namespaces.

        Raises:
            NotFound: the cluster does not serve any of the kinds.
            PermissionDenied: the user may not list any of the kinds that the cluster serves.
            ClusterError: a request to the cluster fails.
        """
        listed, denied = OperatorJobList(), None
        for kind in _VERSIONS:
            try:
                listed.jobs += self._of_kind(kind, namespace)
            except NotFound:
                listed.unserved_kinds.append(kind)
            except PermissionDenied as error:
                listed.forbidden_kinds.append(kind)
                denied = error
        if denied and len(listed.unserved_kinds) + len(listed.forbidden_kinds) == len(_VERSIONS):
            resources = ", ".join(f"{kind.lower()}s" for kind in listed.forbidden_kinds)
            raise PermissionDenied(
                denied.message,
                hint="have an administrator grant a Role with apiGroups [kubeflow.org], verbs [get, list] and "
                f"resources [{resources}], for all namespaces a ClusterRole",
                status=denied.status,
                reason=denied.reason,
            )
        if len(listed.unserved_kinds) == len(_VERSIONS):
            raise NotFound(
                "the cluster has no jobs of the Training Operator: no CustomResourceDefinition of kubeflow.org/v1",
                hint="connect to the cluster that has them, or pass files",
                status=404,
                reason="NotFound",
            )
        return listed

    def list_by_name(self, name: str, namespace: str) -> list[dict[str, Any]]:
        """List the jobs with a name; several kinds may have a job of the same name.

        Raises:
            NotFound: the cluster does not serve any of the kinds.
            PermissionDenied: the user may not list any of the kinds that the cluster serves.
            ClusterError: a request to the cluster fails.
        """
        return [job for job in self.list_all(namespace).jobs if job["metadata"]["name"] == name]

    def list_pods(self, job: Mapping[str, Any]) -> list[dict[str, Any]]:
        """List the pods of a job.

        Raises:
            ClusterError: a request to the cluster fails.
        """
        metadata = job["metadata"]
        pods = self._cluster.list_objects(_PODS, metadata["namespace"], f"{_NAME_LABEL}={metadata['name']}")
        # An older pod belongs to an earlier job of that name.
        return [pod for pod in pods if pod["metadata"]["creationTimestamp"] >= metadata["creationTimestamp"]]

    def _of_kind(self, kind: str, namespace: str | None) -> list[dict[str, Any]]:
        *others, last = _VERSIONS[kind]
        for version in others:
            try:
                return self._of_version(kind, version, namespace)
            except NotFound:
                continue
        return self._of_version(kind, last, namespace)

    def _of_version(self, kind: str, version: str, namespace: str | None) -> list[dict[str, Any]]:
        resource = Resource(f"{kind.lower()}s", f"/apis/kubeflow.org/{version}", "")
        found = self._cluster.list_objects(resource, namespace)
        return [{"apiVersion": f"kubeflow.org/{version}", "kind": kind, **job} for job in found]
