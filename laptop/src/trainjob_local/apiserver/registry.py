"""The registry: objects with all the rules of a Kubernetes API server, for controllers here and for the HTTP layer.

    registry = Registry()                                     # in memory; Registry(Path("state")) survives kill -9
    registry.add_admission("trainjobs", my_rule, stage=Stage.VALIDATING)
    job = registry.create("trainjobs", {"metadata": {"name": "a"}, "spec": {...}}, "default")
    registry.patch("trainjobs", "a", {"status": {...}}, "default", subresource="status")
    subscription = registry.subscribe(lambda change: queue.put(change.key), resources=("trainjobs", "jobsets"))

Resources are named by their plural (`resources.BY_PLURAL`). Objects are plain dicts; what goes in and comes out is
the caller's own. Every method may be called from any thread and raises `Refusal` (a `ClusterError` with the HTTP
status). No permissions are checked here; that is the HTTP layer's work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from trainjob_local.apiserver import bootstrap
from trainjob_local.apiserver.checks import Admission, Checks, Stage, WriteOptions
from trainjob_local.apiserver.collector import Collector, EventExpiry
from trainjob_local.apiserver.deletion import DeleteOptions
from trainjob_local.apiserver.refusals import Refusal, bad_request, not_found
from trainjob_local.apiserver.resources import BY_PLURAL, Resource
from trainjob_local.apiserver.selectors import (
    FieldSelector,
    LabelSelector,
    SelectorError,
    UnknownField,
    parse_fields,
    parse_labels,
)
from trainjob_local.apiserver.storage import Storage
from trainjob_local.apiserver.store import Change, Store, Stored, Subscription
from trainjob_local.apiserver.tokens import Tokens
from trainjob_local.apiserver.writing import PatchKind, Writer
from trainjob_local.objects import utc_now

__all__ = ["Change", "DeleteOptions", "Registry", "Subscription", "WriteOptions", "parse_selectors", "resource_named"]

Json = dict[str, Any]
_Objects = list[Json]  # inside the class `list` is a method
_Versions = list[Stored]


def resource_named(plural: str) -> Resource:
    """Finds a stored resource by its plural; 404 Refusal when there is none."""
    found = BY_PLURAL.get(plural)
    if found is None:
        raise Refusal(404, "NotFound", "the server could not find the requested resource")
    return found


def parse_selectors(resource: Resource, labels: str, fields: str) -> tuple[LabelSelector, FieldSelector]:
    """Reads both selectors; 400 Refusal when one can't be read."""
    try:
        return parse_labels(labels), parse_fields(fields, resource.fields)
    except UnknownField as error:
        raise bad_request(resource.unknown_field(error.field)) from error
    except SelectorError as error:
        raise bad_request(str(error)) from error


class Registry:
    """All objects of the laptop cluster and their rules.

    Dependents of deleted owners, and the content of deleted namespaces, are removed by a thread of the registry's own.

    Args:
        state: folder that keeps everything; None keeps it in memory.
        history: how many changes of each resource are remembered; watches from earlier versions get 410.
        clock: gives the time.

    Attributes:
        store: versions and history, for the HTTP layer.
        tokens: tokens of service accounts.

    Raises:
        ClusterError: another server uses the state folder.
    """

    def __init__(
        self, state: Path | None = None, *, history: int = 1000, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self._storage = Storage(state)
        self.store = Store(self._storage, history=history)
        self.tokens = Tokens(self.store, self._storage, clock)
        self._checks = Checks(self)
        self._writer = Writer(self.store, self._checks, clock)
        bootstrap.fill(self)
        self.store.forget_history()
        self._collector = Collector(self)
        EventExpiry(self, clock)

    def close(self) -> None:
        """Stops the collecting thread and closes the database; nothing may be asked of the registry afterwards."""
        self._collector.stop()
        with self.store.lock:
            self._storage.close()

    @property
    def lock(self) -> threading.RLock:
        """The lock of all reads and writes; hold it to do several of them at once, briefly."""
        return self.store.lock

    def add_admission(self, resource: str, admission: Admission, *, stage: Stage = Stage.MUTATING) -> None:
        """Registers a rule for writes of a resource; rules of a stage are asked in the order they came.

        The order of a write is: unknown fields, defaults, MUTATING rules, schema and names (422), VALIDATING rules,
        existence. Rules run while the registry's lock is held: they may read, and must not write, wait or block.
        """
        self._checks.add(resource_named(resource), admission, stage)

    # -- reading --------------------------------------------------------------------------------------------------

    def get(self, resource: str, name: str, namespace: str = "") -> Json:
        """Reads one object.

        Raises:
            Refusal: 404, there is none.
        """
        return self.read(resource_named(resource), name, namespace).copy()

    def list(self, resource: str, namespace: str = "", *, labels: str = "", fields: str = "") -> _Objects:
        """Reads the objects of a namespace, or of all namespaces, ordered by namespace and name.

        Args:
            resource: the plural.
            namespace: empty for all.
            labels: label selector, such as `a=b,c in (d,e),!f`.
            fields: field selector, such as `metadata.name=x` or `spec.nodeName=n`.

        Raises:
            Refusal: 400, a selector can't be read.
        """
        return [stored.copy() for stored in self.select(resource_named(resource), namespace, labels, fields)]

    def read(self, resource: Resource, name: str, namespace: str = "") -> Stored:
        """Finds the current version of one object without copying it; 404 Refusal when there is none."""
        stored = self.store.get(resource, namespace if resource.namespaced else "", name)
        if stored is None:
            raise not_found(resource, name)
        return stored

    def select(self, resource: Resource, namespace: str, labels: str = "", fields: str = "") -> _Versions:
        """Finds current versions without copying them; see [list][]."""
        by_label, by_field = parse_selectors(resource, labels, fields)
        found = self.store.all(resource, namespace)
        return [stored for stored in found if by_label.matches(stored.body) and by_field.matches(stored.body)]

    # -- writing --------------------------------------------------------------------------------------------------

    def create(
        self, resource: str, body: Mapping[str, Any], namespace: str = "", *, options: WriteOptions | None = None
    ) -> Json:
        """Creates an object from `metadata.name` or `metadata.generateName` and returns it as stored.

        Raises:
            Refusal: 404, the namespace does not exist; 409, the name exists; 400, 403, 422, a rule is broken.
        """
        created = self._writer.create(resource_named(resource), body, namespace, options or WriteOptions())
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
        """Replaces an object, or its status with `subresource="status"`, and returns it as stored.

        With `metadata.resourceVersion` only that version is replaced; built-in kinds may leave it out.

        Raises:
            Refusal: 404; 409, it was changed meanwhile; 400, 403, 422, a rule is broken.
        """
        status = subresource == "status"
        return self._writer.update(resource_named(resource), body, namespace, status, options or WriteOptions())

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
        """Applies a patch to the current version of an object and returns the result as stored.

        Args:
            resource: the plural.
            name: of the object.
            patch: a merge patch (dict), or the operations of a JSON patch (list) with `kind=PatchKind.JSON`.
            namespace: of the object.
            subresource: `status` to patch the status only.
            kind: what sort of patch it is.
            options: how to write.

        Raises:
            Refusal: 404; 409, the patch names another resourceVersion; 400, 403, 422, a rule is broken.
        """
        with self.lock:
            old = self.read(resource_named(resource), name, namespace)
            status = subresource == "status"
            return self._writer.patch(resource_named(resource), old, patch, kind, status, options or WriteOptions())

    def bind(self, pod: str, node: str, namespace: str) -> None:
        """Assigns a pod to a node, as a scheduler does (the subresource `binding`).

        Raises:
            Refusal: 404, no such pod; 409, it is assigned already.
        """
        with self.lock:
            self._writer.bind(self.read(resource_named("pods"), pod, namespace), node)

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
        """Deletes an object and returns it as it was seen last.

        A pod that runs on a node is only marked and goes when it is deleted with grace 0; objects with finalizers go
        when the last one is taken away.

        Args:
            resource: the plural.
            name: of the object.
            namespace: of the object.
            uid: delete only the object with this uid.
            resource_version: delete only this version.
            grace: seconds for a pod to end; None for its own period, 0 to remove it now.
            propagation: `Background`, `Foreground` or `Orphan`; empty is Background, but Orphan for Jobs, as on a
                real cluster.

        Raises:
            Refusal: 404; 409, a precondition does not hold; 403, 422, a rule is broken.
        """
        options = DeleteOptions(uid, resource_version, grace, propagation)
        return self.delete_with(resource_named(resource), name, namespace, options)[0]

    def delete_with(self, kind: Resource, name: str, namespace: str, options: DeleteOptions) -> tuple[Json, bool]:
        """Deletes an object; gives it as seen last, and whether it is gone (see [delete][])."""
        with self.lock:
            return self._writer.delete(kind, self.read(kind, name, namespace), options)

    def delete_all(
        self,
        resource: str,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        options: DeleteOptions | None = None,
    ) -> _Objects:
        """Deletes what is selected (see [list][]) and returns the objects as they were before."""
        kind = resource_named(resource)
        with self.lock:
            selected = self.select(kind, namespace, labels, fields)
            for stored in selected:
                self._writer.delete(kind, stored, options or DeleteOptions())
        return [stored.copy() for stored in selected]

    # -- hearing of changes ---------------------------------------------------------------------------------------

    def subscribe(
        self, callback: Callable[[Change], None], *, resources: Collection[str] = (), replay: bool = True
    ) -> Subscription:
        """Calls back for every change, in the order of writes; nothing is missed or doubled.

        The callback runs on the thread that writes, while the registry's lock is held: it must be quick and must not
        wait; usually it puts a key into a queue. It may read, and even write: changes it makes are delivered after
        the present one.

        Args:
            callback: gets a `Change`; `change.object` is a copy of the caller's own.
            resources: plurals; empty for all.
            replay: begin with an `ADDED` for every object there is.
        """
        return self.store.subscribe(
            callback, frozenset(resource_named(plural).plural for plural in resources), replay=replay
        )
