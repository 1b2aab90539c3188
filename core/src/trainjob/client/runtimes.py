"""The training runtimes of a cluster: all of them for people, and each one remembered for who submits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainjob.client.installed_trainer import TRAINER_API
from trainjob.client.resources import Resource, everything
from trainjob.client.response_checks import check_deletion
from trainjob.errors import NotFound, PermissionDenied
from trainjob.status.runtimes import RuntimeDescription, describe

_RESOURCES = {
    "ClusterTrainingRuntime": Resource("clustertrainingruntimes", TRAINER_API, "", namespaced=False),
    "TrainingRuntime": Resource("trainingruntimes", TRAINER_API, ""),
}
_OWN = _RESOURCES["TrainingRuntime"]
KINDS = tuple(_RESOURCES)
"""The kinds of runtimes: the cluster's, and a namespace's."""
# Runtimes change with a new release of somebody's platform; a refused TrainJob has its own read anew.
_SECONDS = 3600.0


class Runtimes:
    """What is known of a cluster's runtimes; safe to use from several threads.

    Those of a cluster belong to no namespace, so no Role can grant them: where to read them is forbidden, nothing is
    known of them, and nothing fails for it.
    """

    def __init__(self, ask: Callable[..., dict[str, Any]], clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is read yet.

        Args:
            ask: sends a request as [trainjob.client.http_client.HttpClient.request][] does, through short outages.
            clock: seconds, for tests.
        """
        self._ask, self._clock = ask, clock
        self._known: dict[tuple[str, str, str], tuple[float, RuntimeDescription | None]] = {}

    def find(self, name: str, kind: str, namespace: str, *, fresh: bool = False) -> RuntimeDescription | None:
        """One runtime, as it was up to an hour ago; None where it may not be read.

        Args:
            name: its name.
            kind: `ClusterTrainingRuntime` or `TrainingRuntime`.
            namespace: the TrainJob's.
            fresh: read it anew.

        Raises:
            NotFound: there is none, which is asked again each time.
            ClusterError: the cluster can't be asked.
        """
        key = (kind, namespace, name)
        end, found = self._known.get(key, (0.0, None))
        if fresh or self._clock() >= end:
            found = self._read(name, kind, namespace)
            self._known[key] = (self._clock() + _SECONDS, found)
        return found

    def _read(self, name: str, kind: str, namespace: str) -> RuntimeDescription | None:
        resource = _RESOURCES[kind]
        doing = f"get {resource.plural} {name}"
        try:
            answer = self._ask("GET", resource.path(namespace, name), doing=doing, check=resource.check)
        except PermissionDenied:
            return None
        return describe(answer, kind)

    def all(self, kind: str, namespace: str) -> list[RuntimeDescription]:
        """All of a kind, by name.

        Args:
            kind: `ClusterTrainingRuntime` or `TrainingRuntime`.
            namespace: where, for the latter.

        Raises:
            ClusterError: they can't be listed, or may not be.
        """
        resource = _RESOURCES[kind]
        doing = f"list {resource.plural}"
        found = everything(self._ask, resource.path(namespace), doing=doing, query={}, check=resource.check)
        return sorted((describe(one, kind) for one in found), key=lambda one: one.name)

    def create(self, runtime: Mapping[str, Any]) -> dict[str, Any]:
        """Create a namespace's own runtime; unknown fields are an error.

        Raises:
            AdmissionRefused: the API server or a webhook refuses it.
            Conflict: the name exists.
            ClusterError: anything else.
        """
        path = _OWN.path(runtime["metadata"]["namespace"])
        query = {"fieldValidation": "Strict"}
        return self._ask("POST", path, doing=f"create {_OWN.plural}", query=query, body=runtime, check=_OWN.check)

    def give(self, runtime: Mapping[str, Any], owner: Mapping[str, Any]) -> None:
        """Have a namespace's own runtime go with its owner.

        Args:
            runtime: as the API gives it.
            owner: a TrainJob, as the API gives it.

        Raises:
            ClusterError: it could not be changed.
        """
        metadata, uid = owner["metadata"], runtime["metadata"]["uid"]
        reference = {**{key: owner[key] for key in ("apiVersion", "kind")}, **{k: metadata[k] for k in ("name", "uid")}}
        body = {"metadata": {"uid": uid, "ownerReferences": [reference]}}
        self._ask(
            "PATCH",
            _OWN.path(metadata["namespace"], runtime["metadata"]["name"]),
            doing=f"patch {_OWN.plural}",
            body=body,
            check=_OWN.check,
        )

    def delete(self, name: str, namespace: str) -> None:
        """Delete a namespace's own runtime; one that is gone is no error.

        Raises:
            ClusterError: it could not be deleted.
        """
        with contextlib.suppress(NotFound):
            self._ask("DELETE", _OWN.path(namespace, name), doing=f"delete {_OWN.plural}", check=check_deletion)
