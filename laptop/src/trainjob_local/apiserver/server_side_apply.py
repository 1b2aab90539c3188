"""Server-side apply, without the owners of fields.

A real API server records in `metadata.managedFields` who has set which field. It then rejects conflicts, and removes
the fields that their only manager no longer sends. This server merges the sent fields into the object and does neither.
Source: k8s.io/apiserver 0.36 `pkg/endpoints/handlers/patch.go`, sigs.k8s.io/structured-merge-diff v6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob_local.apiserver.kubernetes_types import find_message_key
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.schema import Schema
from trainjob_local.apiserver.status_errors import FieldProblem, bad_request, invalid
from trainjob_local.apiserver.strategic_merge import strategic_merge_patch

__all__ = ["check_configuration", "merge_configuration"]

Json = dict[str, Any]
_FREE = Schema("map")


def check_configuration(resource: Resource, name: str, body: Any, query: Mapping[str, str]) -> Json:
    """Check an applied configuration, and return it with the name of the URL.

    Raises:
        StatusError: 400 if it is no object of the resource with this name; 422 if the query has no `fieldManager`.
    """
    if not query.get("fieldManager"):
        problem = FieldProblem("fieldManager", "Required value", detail="is required for apply patch")
        raise invalid(Resource("meta.k8s.io", "v1", "", "PatchOptions"), "", [problem])
    body = {} if body is None else body
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        raise bad_request("error decoding YAML: the configuration is not an object")
    if (body.get("apiVersion"), body.get("kind")) != (resource.api_version, resource.kind):
        group, _, version = str(body.get("apiVersion") or "").rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={body.get('kind') or ''}")
    metadata = body.get("metadata") or {}
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if metadata.setdefault("name", name) != name:
        raise bad_request(f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})")
    return {**body, "metadata": metadata}


def merge_configuration(resource: Resource, schema: Schema | None, old: Json, applied: Mapping[str, Any]) -> Json:
    """Return an object with a configuration merged into it.

    Args:
        resource: resource of the object.
        schema: schema of a custom resource, which has the keys of its lists; None if it has none.
        old: the object.
        applied: the configuration.
    """
    if resource.custom:
        merged: Json = _merge(schema or _FREE, old, applied)
        return merged
    key = find_message_key(resource.group, resource.version, resource.kind)
    return strategic_merge_patch(old, applied, key)


def _merge(schema: Schema, old: Any, new: Any) -> Any:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        schemas = {name: schema.properties.get(name) or schema.items or _FREE for name in new}
        changed = {name: _merge(schemas[name], old.get(name), value) for name, value in new.items()}
        return {**old, **changed}
    if not (schema.keys and isinstance(old, list) and isinstance(new, list)):
        return new
    item_schema, merged = schema.items or _FREE, {_identity(schema, item): item for item in old}
    for item in new:
        identity = _identity(schema, item)
        merged[identity] = _merge(item_schema, merged.get(identity), item)
    return list(merged.values())


def _identity(schema: Schema, item: Any) -> tuple[Any, ...]:
    return tuple(item.get(key) if isinstance(item, Mapping) else item for key in schema.keys)
