"""The registry as the kubelet and the event recorders see it: the same door a real API server is behind."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from trainjob_local.apiserver import Change, Registry
from trainjob_local.apiserver.registry import parse_selectors, resource_named
from trainjob_local.objects import Handler, Json

__all__ = ["RegistryApi"]

_LOG = logging.getLogger(__name__)


class RegistryApi:
    """An `ObjectApi` over a registry in the same process: faults switched on for clients do not reach it.

    Args:
        registry: the objects.
        address: gives host and port of the API server, which pods are told.
    """

    def __init__(self, registry: Registry, address: Callable[[], str]) -> None:
        self._registry, self._address = registry, address

    @property
    def address(self) -> str:
        """Host and port of the API server."""
        return self._address()

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        """Reads one object."""
        return self._registry.get(resource, name, namespace)

    def list(self, resource: str, namespace: str = "") -> list[Json]:
        """Reads all objects of a resource."""
        return self._registry.list(resource, namespace)

    def create(self, resource: str, body: Json, namespace: str = "") -> Json:
        """Creates an object."""
        return self._registry.create(resource, body, namespace)

    def patch(self, resource: str, name: str, body: Json, namespace: str = "", *, subresource: str = "") -> Json:
        """Applies a JSON merge patch."""
        return self._registry.patch(resource, name, body, namespace, subresource=subresource)

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace: int | None = None,
        propagation: str = "",
    ) -> None:
        """Deletes an object."""
        self._registry.delete(resource, name, namespace, uid=uid, grace=grace, propagation=propagation)

    def token(self, namespace: str, service_account: str, spec: Json) -> str:
        """Makes a token for a service account."""
        return str(self._registry.tokens.create(namespace, service_account, spec)["status"]["token"])

    def follow(self, resource: str, handler: Handler, *, field_selector: str = "") -> None:
        """Calls the handler on a thread of its own; the registry only puts changes into its queue."""
        selected = parse_selectors(resource_named(resource), "", field_selector)[1]
        changes: queue.SimpleQueue[Change] = queue.SimpleQueue()

        def serve() -> None:
            while True:
                change = changes.get()
                try:
                    handler(change.type, change.object)
                except Exception:  # noqa: BLE001 - one object must not end the watch of all
                    _LOG.exception("handling of %s %s", change.type, change.key)

        def heard(change: Change) -> None:
            if selected.matches(change.current.body):
                changes.put(change)

        threading.Thread(target=serve, name=f"follow-{resource}", daemon=True).start()
        self._registry.subscribe(heard, resources=(resource,))
