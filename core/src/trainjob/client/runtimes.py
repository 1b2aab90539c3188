"""Client for the training runtimes of a cluster.

Users list all runtimes. A submission looks up one runtime, which is cached for an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from trainjob.client.installed_trainer import TRAINER_API
from trainjob.client.resources import Resource, list_all
from trainjob.client.response_checks import check_deletion, check_dry_run
from trainjob.errors import Conflict, NotFound, PermissionDenied
from trainjob.status.runtime_description import RuntimeDescription, describe_runtime

_RESOURCES = {
    "ClusterTrainingRuntime": Resource("clustertrainingruntimes", TRAINER_API, "", namespaced=False),
    "TrainingRuntime": Resource("trainingruntimes", TRAINER_API, ""),
}
_TRAINING_RUNTIMES = _RESOURCES["TrainingRuntime"]
RUNTIME_KINDS = tuple(_RESOURCES)
"""The kinds of runtimes: of a cluster, and of a namespace."""
# Runtimes change with a new release of a platform; after a refused TrainJob, its runtime is read again.
_CACHE_SECONDS = 3600.0


class Runtimes:
    """Client for a cluster's training runtimes, safe to use from several threads.

    ClusterTrainingRuntimes belong to no namespace, so no Role can grant access to them. If reading one is forbidden,
    `find` returns None and does not fail.
    """

    def __init__(self, request: Callable[..., dict[str, Any]], clock: Callable[[], float] = time.monotonic) -> None:
        """Create a client with an empty cache.

        Args:
            request: function that sends a request as [trainjob.client.http_client.HttpClient.request][] does, with
                retries through short outages.
            clock: returns monotonic seconds; for tests.
        """
        self._request, self._clock = request, clock
        self._cache: dict[tuple[str, str, str], tuple[float, RuntimeDescription | None]] = {}
        self._assumed: dict[tuple[str, str, str], RuntimeDescription] = {}

    def find(self, name: str, kind: str, namespace: str, *, fresh: bool = False) -> RuntimeDescription | None:
        """Return one runtime, up to an hour old, or None if reading it is forbidden.

        Args:
            name: name of the runtime.
            kind: `ClusterTrainingRuntime` or `TrainingRuntime`.
            namespace: namespace of the TrainJob.
            fresh: read the runtime again.

        Raises:
            NotFound: the runtime does not exist; this result is not cached.
            ClusterError: the request failed.
        """
        if assumed := self._assumed.get((kind, namespace if _RESOURCES[kind].namespaced else "", name)):
            return assumed
        key = (kind, namespace, name)
        expires_at, runtime = self._cache.get(key, (0.0, None))
        if fresh or self._clock() >= expires_at:
            runtime = self._read(name, kind, namespace)
            self._cache[key] = (self._clock() + _CACHE_SECONDS, runtime)
        return runtime

    def assume(self, runtime: Mapping[str, Any]) -> None:
        """Let `find` return a runtime that is not created yet, instead of the cluster's.

        Args:
            runtime: a TrainingRuntime with its namespace, or a ClusterTrainingRuntime.
        """
        kind, metadata = runtime["kind"], runtime["metadata"]
        self._assumed[kind, metadata.get("namespace", ""), metadata["name"]] = describe_runtime(runtime, kind)

    def _read(self, name: str, kind: str, namespace: str) -> RuntimeDescription | None:
        resource = _RESOURCES[kind]
        doing = f"get {resource.plural} {name}"
        try:
            runtime = self._request("GET", resource.object_path(namespace, name), doing=doing, check=resource.check)
        except PermissionDenied:
            return None
        return describe_runtime(runtime, kind)

    def list_all(self, kind: str, namespace: str) -> list[RuntimeDescription]:
        """Return all runtimes of a kind, sorted by name.

        Args:
            kind: `ClusterTrainingRuntime` or `TrainingRuntime`.
            namespace: namespace of the TrainingRuntimes.

        Raises:
            ClusterError: the request failed, or the permission is missing.
        """
        resource = _RESOURCES[kind]
        doing = f"list {resource.plural}"
        found = list_all(
            self._request, resource.collection_path(namespace), doing=doing, query={}, check=resource.check
        )
        return sorted((describe_runtime(each, kind) for each in found), key=lambda each: each.name)

    def list_objects(self, namespace: str, selector: str) -> list[dict[str, Any]]:
        """Return TrainingRuntimes, as the API returns them.

        Args:
            namespace: their namespace.
            selector: label selector; empty selects every object.

        Raises:
            ClusterError: the request failed, or the permission is missing.
        """
        path, doing = _TRAINING_RUNTIMES.collection_path(namespace), f"list {_TRAINING_RUNTIMES.plural}"
        query = {"labelSelector": selector}
        return list_all(self._request, path, doing=doing, query=query, check=_TRAINING_RUNTIMES.check)

    def get(self, runtime: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the runtime of the cluster that has the kind, name and namespace of an object.

        Returns:
            The runtime as the API returns it; None if it does not exist.

        Raises:
            PermissionDenied: the permission to get it is missing.
            ClusterError: the request failed for another reason.
        """
        resource, metadata = _RESOURCES[runtime["kind"]], runtime["metadata"]
        path = resource.object_path(metadata.get("namespace", ""), metadata["name"])
        try:
            return self._request("GET", path, doing=f"get {resource.plural} {metadata['name']}", check=resource.check)
        except NotFound:
            return None

    def create(self, runtime: Mapping[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        """Create a runtime, with an error for unknown fields.

        Args:
            runtime: a TrainingRuntime with its namespace, or a ClusterTrainingRuntime.
            dry_run: whether the API server only validates the runtime and sets its defaults.

        Raises:
            AdmissionRefused: the API server or a webhook refuses the runtime.
            Conflict: a runtime of this name exists.
            PermissionDenied: the permission to create it is missing.
            ClusterError: the request failed for another reason.
        """
        resource = _RESOURCES[runtime["kind"]]
        query = {"fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        return self._request(
            "POST",
            resource.collection_path(runtime["metadata"].get("namespace", "")),
            doing=f"create {resource.plural}",
            query=query,
            body=runtime,
            check=check_dry_run if dry_run else resource.check,
        )

    def replace(self, runtime: Mapping[str, Any]) -> dict[str, Any]:
        """Replace a runtime, with an error for unknown fields.

        Args:
            runtime: the new object, with the resourceVersion of the one that it replaces.

        Raises:
            AdmissionRefused: the API server or a webhook refuses the runtime.
            Conflict: the runtime has changed since it was read.
            ClusterError: the request failed for another reason.
        """
        resource, metadata = _RESOURCES[runtime["kind"]], runtime["metadata"]
        return self._request(
            "PUT",
            resource.object_path(metadata.get("namespace", ""), metadata["name"]),
            doing=f"update {resource.plural} {metadata['name']}",
            query={"fieldValidation": "Strict"},
            body=runtime,
            check=resource.check,
        )

    def set_owner(self, runtime: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
        """Make a TrainJob the owner of a TrainingRuntime, so that both are deleted together.

        Args:
            runtime: the TrainingRuntime, as the API returns it.
            owner: the TrainJob, as the API returns it.

        Raises:
            ClusterError: the runtime could not be changed.
        """
        metadata, uid = owner["metadata"], runtime["metadata"]["uid"]
        reference = {**{key: owner[key] for key in ("apiVersion", "kind")}, **{k: metadata[k] for k in ("name", "uid")}}
        body = {"metadata": {"uid": uid, "ownerReferences": [reference]}}
        self._request(
            "PATCH",
            _TRAINING_RUNTIMES.object_path(metadata["namespace"], runtime["metadata"]["name"]),
            doing=f"patch {_TRAINING_RUNTIMES.plural}",
            body=body,
            check=_TRAINING_RUNTIMES.check,
        )

    def delete(self, name: str, namespace: str, uid: str | None = None) -> bool:
        """Delete a TrainingRuntime.

        Args:
            name: name of the runtime.
            namespace: namespace of the runtime.
            uid: uid of the runtime; None deletes any runtime of this name.

        Returns:
            False if the runtime was already gone, or its name belongs to another runtime by now.

        Raises:
            ClusterError: the runtime could not be deleted.
        """
        try:
            self._request(
                "DELETE",
                _TRAINING_RUNTIMES.object_path(namespace, name),
                doing=f"delete {_TRAINING_RUNTIMES.plural}",
                body={"preconditions": {"uid": uid}} if uid else None,
                check=check_deletion,
            )
        except (NotFound, Conflict):
            return False
        return True
