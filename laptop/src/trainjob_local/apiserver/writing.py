"""Writes of objects: create, update, patch, delete and bind.

Each write holds the store's lock. Each write except `bind` passes the checks.
"""

from __future__ import annotations

import copy
import json
import random
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, cast

from jsonpatch import JsonPatchException, apply_patch
from jsonpointer import JsonPointerException

from trainjob_local.apiserver.checks import Checks, Operation, WriteOptions
from trainjob_local.apiserver.deletion import DeleteOptions, check_preconditions, is_gone, marked
from trainjob_local.apiserver.preparation import new_object, next_object
from trainjob_local.apiserver.refusals import (
    FieldProblem,
    Refusal,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from trainjob_local.apiserver.resources import BY_PLURAL, Resource
from trainjob_local.apiserver.store import Store, Stored, version_number
from trainjob_local.objects import timestamp

__all__ = ["UNKNOWN_FORMAT", "PatchKind", "Writer", "merge_patch"]

Json = dict[str, Any]

_NAME_ATTEMPTS = 8
_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_KEPT_NAMESPACES = ("default", "kube-system", "kube-public")
_OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"


class PatchKind(str, Enum):
    """Media type of a patch.

    The server applies a strategic merge patch like a merge patch: a list in the patch replaces the whole list.
    """

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class Writer:
    """Writer of objects into a store.

    `create` and `update` take the store's lock. The callers of `patch`, `delete` and `bind` hold it.

    Args:
        store: store of the objects.
        checks: rules that every write must pass.
        clock: function that returns the current time.
    """

    def __init__(self, store: Store, checks: Checks, clock: Callable[[], datetime]) -> None:
        self._store, self._checks, self._clock = store, checks, clock

    def create(self, kind: Resource, body: Any, namespace: str, options: WriteOptions) -> Json:
        """Create an object; see `Registry.create`."""
        sent = self._addressed(kind, body, namespace)
        if sent["metadata"].get("resourceVersion"):
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        sent = self._checks.known(kind, sent, options)
        with self._store.lock:
            self._check_namespace(kind, sent["metadata"])
            prepared = self._prepared(kind, _named(sent))
            for _attempt in range(_NAME_ATTEMPTS):
                taken = self._store.get(kind, *_key(prepared))
                if taken is None:
                    return prepared if options.dry_run else self._store.put(kind, prepared).copy()
                if sent["metadata"].get("name"):
                    going = "deletionTimestamp" in taken.body["metadata"]
                    raise already_exists(kind, sent["metadata"]["name"], going=going)
                prepared = self._prepared(kind, _named(sent))
            raise already_exists(kind, prepared["metadata"]["name"])

    def _prepared(self, kind: Resource, sent: Json) -> Json:
        admitted = self._checks.before(kind, Operation.CREATE, sent, None)
        prepared = new_object(kind, admitted, uid=str(uuid.uuid4()), now=timestamp(self._clock()))
        return self._checks.after(kind, prepared, None)

    def update(self, kind: Resource, body: Any, namespace: str, status: bool, options: WriteOptions) -> Json:
        """Replace an object or its status; see `Registry.update`."""
        sent = self._addressed(kind, body, namespace)
        name, uid = sent["metadata"].get("name", ""), sent["metadata"].get("uid")
        with self._store.lock:
            old = self._store.get(kind, sent["metadata"].get("namespace", ""), name)
            if old is None:
                raise not_found(kind, name)
            if uid and uid != old.body["metadata"]["uid"]:
                raise _other_uid(kind, old, uid)
            if kind.custom and not sent["metadata"].get("resourceVersion"):
                raise _without_version(kind, name)
            return self._write(kind, old, self._checks.known(kind, sent, options), status, options)

    def patch(
        self, kind: Resource, old: Stored, patch: Any, patch_kind: PatchKind, status: bool, options: WriteOptions
    ) -> Json:
        """Patch an object or its status; see `Registry.patch`."""
        namespace, name = old.key
        if kind.custom and patch_kind == PatchKind.STRATEGIC:
            raise Refusal(415, "UnsupportedMediaType", UNKNOWN_FORMAT)
        patched = {"metadata": {}, **_patched(old.copy(), patch, patch_kind)}
        sent = self._addressed(kind, patched, namespace)
        if kind.custom and not sent["metadata"].get("resourceVersion"):
            raise _without_version(kind, name)
        if sent["metadata"].get("name") != name:
            given = sent["metadata"].get("name", "")
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
        if sent["metadata"].get("uid") != old.body["metadata"]["uid"]:
            shown = json.dumps(sent["metadata"].get("uid") or "")
            raise invalid(kind, name, [FieldProblem("metadata.uid", "Invalid value", shown, "field is immutable")])
        return self._write(kind, old, self._checks.known(kind, sent, options, patch=True), status, options)

    def _write(self, kind: Resource, old: Stored, sent: Json, status: bool, options: WriteOptions) -> Json:
        try:
            version = version_number(sent["metadata"].get("resourceVersion", ""))
        except ValueError as error:
            raise Refusal(500, "", str(error)) from error
        if version and version != old.version:
            raise conflict(kind, sent["metadata"]["name"])
        current = old.copy()
        admitted = sent if status else self._checks.before(kind, Operation.UPDATE, sent, current)
        prepared = next_object(kind, old.body, admitted, status=status)
        prepared = self._checks.after(kind, prepared, current, status=status)
        if prepared == old.body or options.dry_run:
            return prepared
        stored = self._store.remove(kind, prepared) if is_gone(prepared) else self._store.put(kind, prepared)
        return stored.copy()

    def delete(self, kind: Resource, old: Stored, options: DeleteOptions) -> tuple[Json, bool]:
        """Delete an object.

        Returns:
            The object in its last visible state, and whether it is removed from the store.
        """
        options.check()
        check_preconditions(kind, old.body, options)
        if kind.plural == "namespaces" and old.key[1] in _KEPT_NAMESPACES:
            raise forbidden(kind, old.key[1], "this namespace may not be deleted")
        if kind.plural == "namespaces" and "deletionTimestamp" in old.body["metadata"]:
            return old.copy(), False  # the garbage collector removes it after its content
        self._checks.before_delete(kind, old.copy())
        body = marked(kind, old.copy(), options, self._clock())
        if kind.plural == "namespaces":
            body["status"] = {**body.get("status", {}), "phase": "Terminating"}
            body["metadata"].pop("deletionGracePeriodSeconds")
        gone = is_gone(body)
        if gone and kind.plural != "pods":
            body = old.copy()  # removed at once: no client has seen it with a deletionTimestamp
        if options.dry_run or (not gone and body == old.body):
            return body, gone
        stored = self._store.remove(kind, body) if gone else self._store.put(kind, body)
        return stored.copy(), gone

    def bind(self, old: Stored, node: str) -> None:
        """Assign a pod to a node; see `Registry.bind`."""
        kind, body = BY_PLURAL["pods"], old.copy()
        name, assigned = body["metadata"]["name"], body["spec"].get("nodeName")
        if assigned:
            why = f'pod {name} is already assigned to node "{assigned}"'
            text = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
            raise Refusal(409, "Conflict", text, details={"name": name, "kind": "pods/binding"})
        body["spec"]["nodeName"] = node
        status = body.setdefault("status", {})
        others = [condition for condition in status.get("conditions") or () if condition["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        status["conditions"] = [*others, {**scheduled, "lastTransitionTime": timestamp(self._clock())}]
        self._store.put(kind, body)

    def _addressed(self, kind: Resource, body: Any, namespace: str) -> Json:
        """Return a copy of the body with kind, apiVersion and namespace set.

        Raises:
            Refusal: 400 or 422 if the body names another kind, apiVersion or namespace than the request.
        """
        sent = self._checks.typed(kind, body)
        metadata = sent["metadata"]
        if not kind.namespaced:
            metadata.pop("namespace", None)
            return sent
        if metadata.get("namespace") not in (None, "", namespace):
            raise bad_request(_OTHER_NAMESPACE)
        metadata["namespace"] = namespace
        return sent

    def _check_namespace(self, kind: Resource, metadata: Mapping[str, Any]) -> None:
        if not kind.namespaced:
            return
        name, namespaces = metadata["namespace"], BY_PLURAL["namespaces"]
        found = self._store.get(namespaces, "", name)
        if found is None:
            raise not_found(namespaces, name)
        if "deletionTimestamp" in found.body["metadata"]:
            why = f"unable to create new content in namespace {name} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated"}
            refusal = forbidden(kind, metadata.get("name", ""), why)
            details = {**(refusal.details or {}), "causes": [{**cause, "field": "metadata.namespace"}]}
            raise Refusal(refusal.code, refusal.reason, refusal.message, details=details)


UNKNOWN_FORMAT = (
    "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, "
    "application/merge-patch+json, application/apply-patch+yaml"
)


def _key(body: Mapping[str, Any]) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _named(sent: Json) -> Json:
    """Return a copy of the body with a name, made from `generateName` if it has none."""
    sent = cast("Json", json.loads(json.dumps(sent)))
    metadata = sent["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        ending = "".join(random.choices(_NAME_LETTERS, k=5))  # noqa: S311 - a name, no secret
        metadata["name"] = metadata["generateName"][:58] + ending
    return sent


def _patched(body: Json, patch: Any, kind: PatchKind) -> Json:
    if kind == PatchKind.JSON:
        if not isinstance(patch, list) or not all(isinstance(operation, dict) for operation in patch):
            given = "object" if isinstance(patch, dict) else "value"
            raise bad_request(
                f"error decoding patch: json: cannot unmarshal {given} into Go value of type []handlers.jsonPatchOp"
            )
        try:
            result = apply_patch(body, patch)
        except (JsonPatchException, JsonPointerException) as error:
            text = "the server rejected our request due to an error in our request"
            raise Refusal(422, "Invalid", text, details={}) from error
        return cast("Json", result if isinstance(result, dict) else {})
    if not isinstance(patch, dict):
        text = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        raise bad_request(text)
    return cast("Json", merge_patch(body, patch))


def merge_patch(target: Any, patch: Any) -> Any:
    """Return the target with a JSON merge patch (RFC 7386) applied.

    Objects are merged. A null removes its key. Any other value replaces the old one.
    """
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def _without_version(kind: Resource, name: str) -> Refusal:
    problem = FieldProblem("metadata.resourceVersion", "Invalid value", "0", "must be specified for an update")
    cause = {"reason": "FieldValueInvalid", "message": problem.body(), "field": problem.field}
    details = {"name": name, "group": kind.group, "kind": kind.plural, "causes": [cause]}
    return Refusal(422, "Invalid", f'{kind.qualified} "{name}" is invalid: {problem}', details=details)


def _other_uid(kind: Resource, old: Stored, uid: str) -> Refusal:
    namespace, name = old.key
    path = "/".join(part for part in ("/registry", kind.group, kind.plural, namespace, name) if part)
    found = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.body['metadata']['uid']}"
    text = f"StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: {found}"
    return conflict(kind, name, text)
