"""In-process client of the registry, for the kubelet and the event recorders.

It has the same protocol as the HTTP client for a real API server.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable

from trainjob_local.apiserver import ObjectEvent, Registry
from trainjob_local.apiserver.registry import get_resource, parse_selectors
from trainjob_local.objects import Json, WatchHandler

__all__ = ["RegistryApi"]

_LOG = logging.getLogger(__name__)


class RegistryApi:
    """An `ObjectApi` for a registry in the same process.

    Faults that tests switch on for clients of the API server do not affect it.

    Args:
        registry: registry of the objects.
        address: function that returns host and port of the API server, for the environment of pods.
    """

    def __init__(self, registry: Registry, address: Callable[[], str]) -> None:
        self._registry, self._address = registry, address

    @property
    def address(self) -> str:
        """Host and port of the API server."""
        return self._address()

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        """Return one object."""
        return self._registry.get(resource, name, namespace)

    def list(self, resource: str, namespace: str = "") -> list[Json]:
        """Return the objects of a resource in a namespace, or in all namespaces if none is given."""
        return self._registry.list(resource, namespace)

    def create(self, resource: str, body: Json, namespace: str = "") -> Json:
        """Create an object and return it as stored."""
        return self._registry.create(resource, body, namespace)

    def patch(self, resource: str, name: str, body: Json, namespace: str = "", *, subresource: str = "") -> Json:
        """Apply a JSON merge patch and return the result as stored."""
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
        """Delete an object; see `ObjectApi.delete`."""
        self._registry.delete(resource, name, namespace, uid=uid, grace=grace, propagation=propagation)

    def token(self, namespace: str, service_account: str, spec: Json) -> str:
        """Request a token of a service account with the spec of a TokenRequest; return the token."""
        return str(self._registry.tokens.create(namespace, service_account, spec)["status"]["token"])

    def watch(self, resource: str, handler: WatchHandler, *, field_selector: str = "") -> None:
        """Call the handler for every existing object and every later change, on its own thread.

        The registry's callback only puts events into a queue. An error of the handler is logged.
        """
        selected = parse_selectors(get_resource(resource), "", field_selector)[1]
        events: queue.SimpleQueue[ObjectEvent] = queue.SimpleQueue()

        def serve() -> None:
            while True:
                event = events.get()
                try:
                    handler(event.type, event.object)
                except Exception:  # noqa: BLE001 - one object must not end the watch of all
                    _LOG.exception("the handler of the event %s %s failed", event.type, event.key)

        def enqueue(event: ObjectEvent) -> None:
            if selected.matches(event.current.body):
                events.put(event)

        threading.Thread(target=serve, name=f"watch-{resource}", daemon=True).start()
        self._registry.subscribe(enqueue, resources=(resource,))
