"""Detection of the installed Kubeflow Trainer by the fields of a TrainJob's spec."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainjob.errors import ClusterError, NotFound
from trainjob.status.nested_fields import get_list, get_mapping

TRAINER_API = "/apis/trainer.kubeflow.org/v1alpha1"
_KINDS = "x-kubernetes-group-version-kind"


class InstalledTrainer:
    """Fields of a TrainJob's spec, read once from the server's OpenAPI document.

    This class is safe to use from several threads. Every Trainer serves the same version v1alpha1, but with different
    fields. Every authenticated user can read the document (the ClusterRole system:discovery of Kubernetes 1.14 and
    later).
    """

    def __init__(self, request: Callable[..., dict[str, Any]], server: str) -> None:
        """Create an instance; it sends no request yet.

        Args:
            request: function that sends a request as `trainjob.client.http_client.HttpClient.request` does, with
                retries through short outages.
            server: URL of the API server, for messages.
        """
        self._request, self._server = request, server
        self._lock = threading.Lock()
        self._fields: frozenset[str] = frozenset()

    def spec_fields(self, *, fresh: bool = False) -> frozenset[str]:
        """Return the names of the fields of a TrainJob's spec.

        The result is empty if the server does not publish them. The next call then requests them again.

        Args:
            fresh: read the fields again, because the Trainer may have been upgraded.

        Raises:
            NotFound: Kubeflow Trainer is not installed.
            ClusterError: the request failed.
        """
        with self._lock:
            if fresh or not self._fields:
                self._fields = self._read()
            return self._fields

    @property
    def cached_fields(self) -> frozenset[str]:
        """Names of the spec's fields, as last read; empty if they were never read."""
        return self._fields

    def not_installed_error(self) -> NotFound:
        """Return the error for a server that does not serve TrainJobs."""
        return NotFound(
            f"Kubeflow Trainer is not installed on {self._server}: "
            f"the API {TRAINER_API.removeprefix('/apis/')} does not exist",
            hint="install Kubeflow Trainer 2.0 or later with its CRDs, or connect to the cluster that has it",
            status=404,
            reason="NotFound",
        )

    def _read(self) -> frozenset[str]:
        """Request the OpenAPI document and return the names of the fields.

        The document is about 1 MB of JSON for Trainer 2.3, because it repeats the whole pod for each runtime. Only the
        names are kept.
        """
        try:
            document = self._request("GET", f"/openapi/v3{TRAINER_API}", doing="get the API's OpenAPI document")
        except ClusterError as error:
            if error.retryable:
                raise
            if isinstance(error, NotFound):
                self._raise_if_not_served()
            return frozenset()
        return frozenset(name for fields in _find_spec_schemas(document) for name in fields)

    def _raise_if_not_served(self) -> None:
        """Raise the error for a missing Trainer if the server does not serve its API.

        A missing document does not show that the Trainer is missing. A proxy may withhold the document, and the server
        publishes it a moment after the API itself.
        """
        try:
            self._request("GET", TRAINER_API, doing=f"get {TRAINER_API}")
        except NotFound as error:
            raise self.not_installed_error() from error
        except ClusterError:
            return


def _find_spec_schemas(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for schema in get_mapping(document, "components", "schemas").values():
        if any(kind.get("kind") == "TrainJob" for kind in get_list(schema, _KINDS)):
            yield get_mapping(schema, "properties", "spec", "properties")
