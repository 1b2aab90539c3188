"""The methods of the registry that its own parts use.

Those parts import this protocol. They cannot import the registry, because the registry imports them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from trainjob_local.apiserver.deletion import DeleteOptions
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.store import ObjectEvent, Store, Subscription

__all__ = ["ObjectRegistry"]

Json = dict[str, Any]


class ObjectRegistry(Protocol):
    """Methods of the registry; [trainjob_local.apiserver.registry.Registry][] documents them."""

    store: Store

    @property
    def lock(self) -> threading.RLock:
        """Lock of all reads and writes."""
        ...

    def subscribe(self, callback: Callable[[ObjectEvent], None], *, resources: Collection[str] = ()) -> Subscription:
        """Call the callback for every change of these resources."""
        ...

    def create(self, resource: str, body: Mapping[str, Any], namespace: str = "") -> Json:
        """Create an object and return it as stored."""
        ...

    def patch(self, resource: str, name: str, patch: Any, namespace: str = "") -> Json:
        """Apply a merge patch to an object and return the result as stored."""
        ...

    def delete(self, resource: str, name: str, namespace: str = "") -> Json:
        """Delete an object and return its last visible state."""
        ...

    def delete_with_options(
        self, resource: Resource, name: str, namespace: str, options: DeleteOptions
    ) -> tuple[Json, bool]:
        """Delete an object with options; return it, and whether it is removed from the store."""
        ...
