"""Read access of the controllers to the registry.

The objects are the registry's current ones, not copies, so no caller may change them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from trainjob.errors import ClusterError
from trainjob_local.apiserver import Registry
from trainjob_local.apiserver.registry import get_resource
from trainjob_local.objects import Json, controller_of

__all__ = ["ObjectLister"]


class ObjectLister:
    """Lister that returns objects without copying them; `Registry.get` copies them."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def find(self, resource: str, name: str, namespace: str = "") -> Json | None:
        """Return an object, or None if it does not exist."""
        try:
            return cast("Json", self._registry.get_stored(get_resource(resource), name, namespace).body)
        except ClusterError:
            return None

    def list_objects(self, resource: str, namespace: str = "", labels: str = "") -> list[Json]:
        """List the objects of a resource."""
        found = self._registry.list_stored(get_resource(resource), namespace, labels)
        return [cast("Json", stored.body) for stored in found]

    def list_owned(self, resource: str, owner: Json, labels: str = "") -> list[Json]:
        """List the objects of a resource that an owner controls in its namespace."""
        meta = owner["metadata"]
        return list(_owned(self.list_objects(resource, meta["namespace"], labels), meta["uid"]))


def _owned(objects: Iterable[Json], uid: str) -> Iterable[Json]:
    return (one for one in objects if controller_of(one).get("uid") == uid)
