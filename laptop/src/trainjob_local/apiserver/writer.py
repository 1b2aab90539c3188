"""Writes of objects: create, update, patch, delete and bind.

Each write holds the store's lock. The write rules apply to each write except `bind`.
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

from trainjob_local.apiserver.deletion import DeleteOptions, check_preconditions, is_removable, mark_deleted
from trainjob_local.apiserver.kubernetes_types import find_message_key
from trainjob_local.apiserver.preparation import prepare_for_create, prepare_for_update
from trainjob_local.apiserver.resources import BY_PLURAL, Resource
from trainjob_local.apiserver.server_side_apply import merge_configuration
from trainjob_local.apiserver.status_errors import (
    FieldProblem,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from trainjob_local.apiserver.store import Store, StoredObject, parse_resource_version
from trainjob_local.apiserver.strategic_merge import strategic_merge_patch
from trainjob_local.apiserver.write_rules import SCHEMAS, Operation, WriteOptions, WriteRules
from trainjob_local.objects import format_timestamp

__all__ = ["UNSUPPORTED_PATCH_TYPE", "PatchKind", "Writer", "merge_patch"]

Json = dict[str, Any]

_NAME_ATTEMPTS = 8
_NAME_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_UNDELETABLE_NAMESPACES = ("default", "kube-system", "kube-public")
_NAMESPACE_MISMATCH = "the namespace of the provided object does not match the namespace sent on the request"


class PatchKind(str, Enum):
    """Media type of a patch."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class Writer:
    """Writer of objects into a store.

    `create` and `update` take the store's lock. The callers of `patch`, `delete` and `bind` hold it.

    Args:
        store: store of the objects.
        rules: rules that apply to every write except `bind`.
        clock: function that returns the current time.
    """

    def __init__(self, store: Store, rules: WriteRules, clock: Callable[[], datetime]) -> None:
        self._store, self._rules, self._clock = store, rules, clock

    def create(self, resource: Resource, body: Any, namespace: str, options: WriteOptions) -> Json:
        """Create an object; see `Registry.create`."""
        sent = self._decode_body(resource, body, namespace)
        if sent["metadata"].get("resourceVersion"):
            raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
        sent = self._rules.prune_and_default(resource, sent, options)
        with self._store.lock:
            self._check_namespace(resource, sent["metadata"])
            prepared = self._prepare_new(resource, _with_generated_name(sent))
            for _attempt in range(_NAME_ATTEMPTS):
                existing = self._store.get(resource, *_key(prepared))
                if existing is None:
                    return prepared if options.dry_run else self._store.put(resource, prepared).copy()
                if sent["metadata"].get("name"):
                    being_deleted = "deletionTimestamp" in existing.body["metadata"]
                    raise already_exists(resource, sent["metadata"]["name"], being_deleted=being_deleted)
                prepared = self._prepare_new(resource, _with_generated_name(sent))
            raise already_exists(resource, prepared["metadata"]["name"])

    def _prepare_new(self, resource: Resource, body: Json) -> Json:
        admitted = self._rules.mutate(resource, Operation.CREATE, body, None)
        prepared = prepare_for_create(resource, admitted, uid=str(uuid.uuid4()), now=format_timestamp(self._clock()))
        return self._rules.validate(resource, prepared, None)

    def update(self, resource: Resource, body: Any, namespace: str, status: bool, options: WriteOptions) -> Json:
        """Replace an object or its status; see `Registry.update`."""
        sent = self._decode_body(resource, body, namespace)
        name, uid = sent["metadata"].get("name", ""), sent["metadata"].get("uid")
        with self._store.lock:
            old = self._store.get(resource, sent["metadata"].get("namespace", ""), name)
            if old is None:
                raise not_found(resource, name)
            if uid and uid != old.body["metadata"]["uid"]:
                raise _uid_conflict_error(resource, old, uid)
            if resource.custom and not sent["metadata"].get("resourceVersion"):
                raise _missing_version_error(resource, name)
            return self._write(resource, old, self._rules.prune_and_default(resource, sent, options), status, options)

    def patch(
        self,
        resource: Resource,
        old: StoredObject,
        patch: Any,
        patch_kind: PatchKind,
        status: bool,
        options: WriteOptions,
    ) -> Json:
        """Patch an object or its status; see `Registry.patch`."""
        namespace, name = old.key
        if resource.custom and patch_kind == PatchKind.STRATEGIC:
            raise StatusError(415, "UnsupportedMediaType", UNSUPPORTED_PATCH_TYPE)
        patched = {"metadata": {}, **_apply_patch(resource, old.copy(), patch, patch_kind)}
        sent = self._decode_body(resource, patched, namespace)
        if resource.custom and not sent["metadata"].get("resourceVersion"):
            raise _missing_version_error(resource, name)
        if sent["metadata"].get("name") != name:
            given = sent["metadata"].get("name", "")
            raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
        if sent["metadata"].get("uid") != old.body["metadata"]["uid"]:
            shown = json.dumps(sent["metadata"].get("uid") or "")
            raise invalid(resource, name, [FieldProblem("metadata.uid", "Invalid value", shown, "field is immutable")])
        return self._write(
            resource, old, self._rules.prune_and_default(resource, sent, options, patch=True), status, options
        )

    def _write(self, resource: Resource, old: StoredObject, body: Json, status: bool, options: WriteOptions) -> Json:
        try:
            version = parse_resource_version(body["metadata"].get("resourceVersion", ""))
        except ValueError as error:
            raise StatusError(500, "", str(error)) from error
        if version and version != old.version:
            raise conflict(resource, body["metadata"]["name"])
        current = old.copy()
        admitted = body if status else self._rules.mutate(resource, Operation.UPDATE, body, current)
        prepared = prepare_for_update(resource, old.body, admitted, status=status)
        prepared = self._rules.validate(resource, prepared, current, status=status)
        if prepared == old.body or options.dry_run:
            return prepared
        stored = (
            self._store.remove(resource, prepared) if is_removable(prepared) else self._store.put(resource, prepared)
        )
        return stored.copy()

    def delete(self, resource: Resource, old: StoredObject, options: DeleteOptions) -> tuple[Json, bool]:
        """Delete an object.

        Returns:
            The object in its last visible state, and whether it is removed from the store.
        """
        options.check()
        check_preconditions(resource, old.body, options)
        if resource.plural == "namespaces" and old.key[1] in _UNDELETABLE_NAMESPACES:
            raise forbidden(resource, old.key[1], "this namespace may not be deleted")
        if resource.plural == "namespaces" and "deletionTimestamp" in old.body["metadata"]:
            return old.copy(), False  # the garbage collector removes it after its content
        self._rules.admit_deletion(resource, old.copy())
        body = mark_deleted(resource, old.copy(), options, self._clock())
        if resource.plural == "namespaces":
            body["status"] = {**body.get("status", {}), "phase": "Terminating"}
            body["metadata"].pop("deletionGracePeriodSeconds")
        removed = is_removable(body)
        if removed and resource.plural != "pods":
            body = old.copy()  # removed at once: no client has seen it with a deletionTimestamp
        if options.dry_run or (not removed and body == old.body):
            return body, removed
        stored = self._store.remove(resource, body) if removed else self._store.put(resource, body)
        return stored.copy(), removed

    def bind(self, old: StoredObject, node: str) -> None:
        """Assign a pod to a node; see `Registry.bind`."""
        kind, body = BY_PLURAL["pods"], old.copy()
        name, assigned = body["metadata"]["name"], body["spec"].get("nodeName")
        if assigned:
            why = f'pod {name} is already assigned to node "{assigned}"'
            text = f'Operation cannot be fulfilled on pods/binding "{name}": {why}'
            raise StatusError(409, "Conflict", text, details={"name": name, "kind": "pods/binding"})
        body["spec"]["nodeName"] = node
        status = body.setdefault("status", {})
        others = [condition for condition in status.get("conditions") or () if condition["type"] != "PodScheduled"]
        scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}
        status["conditions"] = [*others, {**scheduled, "lastTransitionTime": format_timestamp(self._clock())}]
        self._store.put(kind, body)

    def _decode_body(self, resource: Resource, body: Any, namespace: str) -> Json:
        """Return a copy of the body with kind, apiVersion and namespace set.

        Raises:
            StatusError: 400 or 422 if the body names another kind, apiVersion or namespace than the request.
        """
        sent = self._rules.decode(resource, body)
        metadata = sent["metadata"]
        if not resource.namespaced:
            metadata.pop("namespace", None)
            return sent
        if metadata.get("namespace") not in (None, "", namespace):
            raise bad_request(_NAMESPACE_MISMATCH)
        metadata["namespace"] = namespace
        return sent

    def _check_namespace(self, resource: Resource, metadata: Mapping[str, Any]) -> None:
        if not resource.namespaced:
            return
        name, namespaces = metadata["namespace"], BY_PLURAL["namespaces"]
        found = self._store.get(namespaces, "", name)
        if found is None:
            raise not_found(namespaces, name)
        if "deletionTimestamp" in found.body["metadata"]:
            why = f"unable to create new content in namespace {name} because it is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {name} is being terminated"}
            error = forbidden(resource, metadata.get("name", ""), why)
            details = {**(error.details or {}), "causes": [{**cause, "field": "metadata.namespace"}]}
            raise StatusError(error.code, error.reason, error.message, details=details)


UNSUPPORTED_PATCH_TYPE = (
    "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, "
    "application/merge-patch+json, application/apply-patch+yaml"
)


def _key(body: Mapping[str, Any]) -> tuple[str, str]:
    return body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _with_generated_name(body: Json) -> Json:
    """Return a copy of the body with a name, made from `generateName` if it has none."""
    body = cast("Json", json.loads(json.dumps(body)))
    metadata = body["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        ending = "".join(random.choices(_NAME_LETTERS, k=5))  # noqa: S311 - a name, no secret
        metadata["name"] = metadata["generateName"][:58] + ending
    return body


def _apply_patch(resource: Resource, body: Json, patch: Any, kind: PatchKind) -> Json:
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
            raise StatusError(422, "Invalid", text, details={}) from error
        return cast("Json", result if isinstance(result, dict) else {})
    if not isinstance(patch, dict):
        text = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
        raise bad_request(text)
    try:
        if kind == PatchKind.APPLY:
            return merge_configuration(resource, SCHEMAS.get(resource.plural), body, patch)
        if kind == PatchKind.STRATEGIC:
            key = find_message_key(resource.group, resource.version, resource.kind)
            return strategic_merge_patch(body, patch, key)
    except (AttributeError, TypeError) as error:
        raise bad_request(f"error decoding patch: a field has a value of another type ({error})") from error
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


def _missing_version_error(resource: Resource, name: str) -> StatusError:
    problem = FieldProblem("metadata.resourceVersion", "Invalid value", "0", "must be specified for an update")
    cause = {"reason": "FieldValueInvalid", "message": problem.body(), "field": problem.field}
    details = {"name": name, "group": resource.group, "kind": resource.plural, "causes": [cause]}
    return StatusError(422, "Invalid", f'{resource.qualified_name} "{name}" is invalid: {problem}', details=details)


def _uid_conflict_error(resource: Resource, old: StoredObject, uid: str) -> StatusError:
    namespace, name = old.key
    path = "/".join(part for part in ("/registry", resource.group, resource.plural, namespace, name) if part)
    found = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old.body['metadata']['uid']}"
    text = f"StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: {found}"
    return conflict(resource, name, text)
