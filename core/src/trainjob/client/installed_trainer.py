"""Which Kubeflow Trainer a cluster has, as far as the API server tells: the fields of a TrainJob's spec."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainjob.errors import ClusterError, NotFound, Unauthorized
from trainjob.status.reading import rows, table

TRAINER_API = "/apis/trainer.kubeflow.org/v1alpha1"
_KINDS = "x-kubernetes-group-version-kind"


class InstalledTrainer:
    """The fields of a TrainJob's spec, read once from the server's OpenAPI document; safe to use from several threads.

    Every Trainer serves the same version v1alpha1 with other fields. The document is readable by every authenticated
    user (the ClusterRole system:discovery of Kubernetes 1.14 and later).
    """

    def __init__(self, ask: Callable[..., dict[str, Any]], server: str) -> None:
        """Remember how to ask.

        Args:
            ask: sends a request as `trainjob.client.http_client.HttpClient.request` does, through short outages.
            server: the API server's URL, for messages.
        """
        self._ask, self._server = ask, server
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()

    def spec_fields(self, *, fresh: bool = False) -> frozenset[str]:
        """The fields; empty when the server does not tell, which is asked again the next time.

        Args:
            fresh: read them anew; somebody may have upgraded the Trainer.

        Raises:
            NotFound: Kubeflow Trainer is not installed.
            ClusterError: the cluster can't be asked.
        """
        with self._lock:
            if fresh or not self._known:
                self._known = self._read()
            return self._known

    @property
    def known(self) -> frozenset[str]:
        """The fields as they were read last; empty when they never were."""
        return self._known

    def missing(self) -> NotFound:
        """The error for a server that knows no TrainJobs."""
        return NotFound(
            f"Kubeflow Trainer is not installed on {self._server}: it serves no {TRAINER_API.removeprefix('/apis/')}",
            hint="install Kubeflow Trainer 2.0 or later with its CRDs, or connect to the cluster that has it",
            status=404,
            reason="NotFound",
        )

    def _read(self) -> frozenset[str]:
        """About 1 MB of JSON for Trainer 2.3 (it repeats the whole pod for each runtime); only the names are kept."""
        try:
            document = self._ask("GET", f"/openapi/v3{TRAINER_API}", doing="get the API's OpenAPI document")
        except Unauthorized:
            raise
        except ClusterError as error:
            if error.retryable:
                raise
            if isinstance(error, NotFound):
                self._check_served()
            return frozenset()
        return frozenset(name for fields in _specs(document) for name in fields)

    def _check_served(self) -> None:
        """A proxy may withhold the document, and the server publishes it a moment after the API itself."""
        try:
            self._ask("GET", TRAINER_API, doing=f"get {TRAINER_API}")
        except NotFound as error:
            raise self.missing() from error
        except ClusterError:
            return


def _specs(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for schema in table(document, "components", "schemas").values():
        if any(kind.get("kind") == "TrainJob" for kind in rows(schema, _KINDS)):
            yield table(schema, "properties", "spec", "properties")
