"""The registry: objects with all the rules of a Kubernetes API server.

Controllers in the same process and the HTTP layer use it:

    registry = Registry()                                     # in memory; Registry(Path("state")) survives kill -9
    registry.add_admission("trainjobs", my_rule, stage=Stage.VALIDATING)
    job = registry.create("trainjobs", {"metadata": {"name": "a"}, "spec": {...}}, "default")
    registry.patch("trainjobs", "a", {"status": {...}}, "default", subresource="status")
    subscription = registry.subscribe(lambda event: queue.put(event.key), resources=("trainjobs", "jobsets"))

The name of a resource is its plural (`resources.BY_PLURAL`). Objects are plain dicts. The registry copies the objects
that it receives and returns, so the caller may change them. Any thread may call every method. Errors are a
`StatusError` (a `ClusterError` with the HTTP status). The registry checks no permissions; the HTTP layer does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from trainjob_local.apiserver import bootstrap
from trainjob_local.apiserver.deletion import DeleteOptions
from trainjob_local.apiserver.garbage_collector import EventExpiry, GarbageCollector
from trainjob_local.apiserver.resources import BY_PLURAL, Resource
from trainjob_local.apiserver.selectors import (
    FieldSelector,
    LabelSelector,
    SelectorError,
    UnknownField,
    parse_fields,
    parse_labels,
)
from trainjob_local.apiserver.status_errors import StatusError, bad_request, not_found
from trainjob_local.apiserver.storage import Storage
from trainjob_local.apiserver.store import ObjectEvent, Store, StoredObject, Subscription
from trainjob_local.apiserver.tokens import TokenIssuer
from trainjob_local.apiserver.write_rules import Admission, Stage, WriteOptions, WriteRules
from trainjob_local.apiserver.writer import PatchKind, Writer
from trainjob_local.objects import utc_now

__all__ = [
    "DeleteOptions",
    "ObjectEvent",
    "Registry",
    "Subscription",
    "WriteOptions",
    "get_resource",
    "parse_selectors",
]

Json = dict[str, Any]
_Objects = list[Json]  # an alias, because inside the class `list` is a method
_Versions = list[StoredObject]


def get_resource(plural: str) -> Resource:
    """Return the stored resource with this plural.

    Raises:
        StatusError: 404 if there is no such resource.
    """
    found = BY_PLURAL.get(plural)
    if found is None:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")
    return found


def parse_selectors(resource: Resource, labels: str, fields: str) -> tuple[LabelSelector, FieldSelector]:
    """Parse a label selector and a field selector.

    Raises:
        StatusError: 400 if a selector is not valid, or if the resource does not support a field.
    """
    try:
        return parse_labels(labels), parse_fields(fields, resource.selectable_fields)
    except UnknownField as error:
        raise bad_request(resource.unknown_field_message(error.field)) from error
    except SelectorError as error:
        raise bad_request(str(error)) from error


class Registry:
    """All objects of the laptop cluster and their rules.

    A thread of the registry removes dependents of deleted owners, and the content of deleted namespaces.

    Args:
        state: folder of the database; None keeps everything in memory.
        history: number of changes of each resource that are kept; watches from earlier versions get 410.
        clock: function that returns the current time.

    Attributes:
        store: versions and history of the objects, for the HTTP layer.
        tokens: issuer and verifier of service account tokens.

    Raises:
        ClusterError: another server uses the state folder.
    """

    def __init__(
        self, state: Path | None = None, *, history: int = 1000, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._storage = Storage(state)
        self.store = Store(self._storage, history=history)
        self.tokens = TokenIssuer(self.store, self._storage, clock)
        self._rules = WriteRules(self)
        self._writer = Writer(self.store, self._rules, clock)
        bootstrap.create_bootstrap_objects(self)
        self.store.clear_history()
        self._garbage_collector = GarbageCollector(self)
        EventExpiry(self, clock)

    def close(self) -> None:
        """Stop the garbage collector and close the database.

        No method of the registry may be called after this.
        """
        self._garbage_collector.stop()
        with self.store.lock:
            self._storage.close()

    @property
    def lock(self) -> threading.RLock:
        """Lock of all reads and writes; hold it briefly to make several of them one atomic step."""
        return self.store.lock

    def add_admission(self, resource: str, admission: Admission, *, stage: Stage = Stage.MUTATING) -> None:
        """Register a rule for writes of a resource; rules of a stage run in order of registration.

        The order of a write is: unknown fields, defaults, MUTATING rules, schema and names (422), VALIDATING rules,
        existence. Rules run while the registry's lock is held: they may read, and must not write, wait or block.
        """
        self._rules.add_admission(get_resource(resource), admission, stage)

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        """Return one object.

        Raises:
            StatusError: 404 if it does not exist.
        """
        return self.get_stored(get_resource(resource), name, namespace).copy()

    def list(self, resource: str, namespace: str = "", *, labels: str = "", fields: str = "") -> _Objects:
        """Return the objects of a namespace, or of all namespaces, ordered by namespace and name.

        Args:
            resource: plural of the resource.
            namespace: namespace of the objects; empty for all.
            labels: label selector, such as `a=b,c in (d,e),!f`.
            fields: field selector, such as `metadata.name=x` or `spec.nodeName=n`.

        Raises:
            StatusError: 400 if a selector is not valid.
        """
        return [stored.copy() for stored in self.list_stored(get_resource(resource), namespace, labels, fields)]

    def get_stored(self, resource: Resource, name: str, namespace: str = "") -> StoredObject:
        """Return the current version of one object without copying it.

        Raises:
            StatusError: 404 if it does not exist.
        """
        stored = self.store.get(resource, namespace if resource.namespaced else "", name)
        if stored is None:
            raise not_found(resource, name)
        return stored

    def list_stored(self, resource: Resource, namespace: str, labels: str = "", fields: str = "") -> _Versions:
        """Return the current versions of selected objects without copying them; see [list][]."""
        by_label, by_field = parse_selectors(resource, labels, fields)
        found = self.store.list_objects(resource, namespace)
        return [stored for stored in found if by_label.matches(stored.body) and by_field.matches(stored.body)]

    # -- writing --------------------------------------------------------------------------------------------------

    def create(
        self, resource: str, body: Mapping[str, Any], namespace: str = "", *, options: WriteOptions | None = None
    ) -> Json:
        """Create an object with `metadata.name` or `generateName` and return it as stored.

        Raises:
            StatusError: 404 if the namespace does not exist; 409 if the name exists; 400, 403 or 422 if the object
                breaks a rule.
        """
        created = self._writer.create(get_resource(resource), body, namespace, options or WriteOptions())
        if resource == "namespaces" and "resourceVersion" in created["metadata"]:
            bootstrap.add_default_account(self, created["metadata"]["name"])
        return created

    def update(
        self,
        resource: str,
        body: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        options: WriteOptions | None = None,
    ) -> Json:
        """Replace an object, or its status with `subresource="status"`, and return it as stored.

        If the body has `metadata.resourceVersion`, only that version is replaced. Custom resources must have it.

        Raises:
            StatusError: 404 if the object does not exist; 409 if it has another resourceVersion or uid; 400, 403 or 422
                if the object breaks a rule.
        """
        status = subresource == "status"
        return self._writer.update(get_resource(resource), body, namespace, status, options or WriteOptions())

    def patch(
        self,
        resource: str,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        kind: PatchKind = PatchKind.MERGE,
        options: WriteOptions | None = None,
    ) -> Json:
        """Apply a patch to the current version of an object and return the result as stored.

        Args:
            resource: plural of the resource.
            name: name of the object.
            patch: a merge patch (dict), or the operations of a JSON patch (list) with `kind=PatchKind.JSON`.
            namespace: namespace of the object.
            subresource: `status` to patch the status only.
            kind: format of the patch.
            options: options of the write.

        Raises:
            StatusError: 404 if the object does not exist; 409 if the patch names another resourceVersion; 400, 403, 415
                or 422 if the patch or its result breaks a rule.
        """
        with self.lock:
            old = self.get_stored(get_resource(resource), name, namespace)
            status = subresource == "status"
            return self._writer.patch(get_resource(resource), old, patch, kind, status, options or WriteOptions())

    def bind(self, pod: str, node: str, namespace: str) -> None:
        """Assign a pod to a node, as a scheduler does with the subresource `binding`.

        Raises:
            StatusError: 404 if the pod does not exist; 409 if it is already assigned.
        """
        with self.lock:
            self._writer.bind(self.get_stored(get_resource("pods"), pod, namespace), node)

    # -- deleting -------------------------------------------------------------------------------------------------

    def delete(
        self,
        resource: str,
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
        propagation: str = "",
    ) -> Json:
        """Delete an object and return its last visible state.

        A pod that runs on a node is only marked; it is removed when it is deleted with a grace period of 0. An object
        with finalizers is removed when its last finalizer is removed.

        Args:
            resource: plural of the resource.
            name: name of the object.
            namespace: namespace of the object.
            uid: required uid of the object; empty for any.
            resource_version: required version of the object; empty for any.
            grace: grace period of a pod in seconds; None for its own period, 0 to remove it now.
            propagation: `Background`, `Foreground` or `Orphan`; empty is Background, but Orphan for Jobs, as on a
                real cluster.

        Raises:
            StatusError: 404 if the object does not exist; 409 if a precondition does not hold; 403 or 422 if the
                deletion breaks a rule.
        """
        options = DeleteOptions(uid, resource_version, grace, propagation)
        return self.delete_with_options(get_resource(resource), name, namespace, options)[0]

    def delete_with_options(
        self, resource: Resource, name: str, namespace: str, options: DeleteOptions
    ) -> tuple[Json, bool]:
        """Delete an object; see [delete][].

        Returns:
            The object in its last visible state, and whether it is removed from the store.
        """
        with self.lock:
            return self._writer.delete(resource, self.get_stored(resource, name, namespace), options)

    def delete_collection(
        self,
        resource: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        options: DeleteOptions | None = None,
    ) -> _Objects:
        """Delete the selected objects (see [list][]) and return them as they were before."""
        kind = get_resource(resource)
        with self.lock:
            selected = self.list_stored(kind, namespace, labels, fields)
            for stored in selected:
                self._writer.delete(kind, stored, options or DeleteOptions())
        return [stored.copy() for stored in selected]

    # -- subscriptions --------------------------------------------------------------------------------------------

    def subscribe(
        self, callback: Callable[[ObjectEvent], None], *, resources: Collection[str] = (), replay: bool = True
    ) -> Subscription:
        """Call the callback exactly once for every change, in the order of writes.

        The callback runs on the thread that writes, while the registry's lock is held. It must be quick and must not
        wait; usually it puts a key into a queue. It may read and even write. The changes that it makes are delivered
        after the current one.

        Args:
            callback: function that gets an `ObjectEvent`; it may change the copy `event.object`.
            resources: plurals of the resources; empty for all.
            replay: whether to begin with an `ADDED` for every existing object.
        """
        return self.store.subscribe(
            callback, frozenset(get_resource(plural).plural for plural in resources), replay=replay
        )
