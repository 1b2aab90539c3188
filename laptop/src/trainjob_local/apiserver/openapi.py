"""The OpenAPI v3 documents, made from the schemas of this package and the table of Kubernetes' own types.

They are sufficient for `kubectl explain`, for kubectl's validation, and for clients that read the fields of a resource.
Source of the shape: kube-apiserver 1.36.3 (kube-openapi, and apiextensions-apiserver `pkg/controller/openapi`).
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainjob_local.apiserver.kubernetes_types import find_message_key
from trainjob_local.apiserver.resources import Resource, by_group_version
from trainjob_local.apiserver.schema import Schema
from trainjob_local.apiserver.type_schemas import REFERENCE, build_type_schemas, type_schema_name, types_digest
from trainjob_local.apiserver.write_rules import SCHEMAS

__all__ = ["build_openapi", "build_openapi_index"]

Json = dict[str, Any]

_COLLECTION = {"get": "list", "post": "post", "delete": "deletecollection"}
_OBJECT = {"get": "get", "put": "put", "patch": "patch", "delete": "delete"}
_SUBRESOURCES: Mapping[str, Mapping[str, str]] = {
    "status": {"get": "get", "put": "put", "patch": "patch"},
    "log": {"get": "get"},
    "binding": {"post": "post"},
    "token": {"post": "post"},
}
_WRITES = ("post", "put", "patch")


def build_openapi_index(group_versions: Iterable[tuple[str, str]]) -> Json:
    """Return the index of the documents; the URL of a document contains its hash."""
    paths = {}
    for group, version in group_versions:
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_digest(group, version)}"}
    return {"paths": paths}


@functools.cache
def build_openapi(group: str, version: str) -> Json:
    """Return the document of one API group and version."""
    resources = by_group_version(group, version)
    schemas: Json = {}
    paths: Json = {}
    for resource in resources:
        schemas |= _schemas(resource)
        paths |= _paths(resource)
    info = {
        "title": "Kubernetes CRD Swagger" if resources and resources[0].custom else "Kubernetes",
        "version": "v0.1.0",
    }
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


@functools.cache
def _digest(group: str, version: str) -> str:
    # Not of the document itself, because it takes long to make that of Kubernetes' own types.
    schemas = {resource.plural: repr(SCHEMAS.get(resource.plural)) for resource in by_group_version(group, version)}
    return hashlib.sha256(json.dumps([group, version, schemas, types_digest()]).encode()).hexdigest().upper()


def _schema_name(resource: Resource) -> str:
    """Return the name of a schema, such as `org.kubeflow.trainer.v1alpha1.TrainJob`."""
    if key := _type_key(resource):
        return type_schema_name(key)
    return f"{'.'.join(reversed(resource.group.split('.')))}.{resource.version}.{resource.kind}"


def _schemas(resource: Resource) -> Json:
    schema, name, key = SCHEMAS.get(resource.plural), _schema_name(resource), _type_key(resource)
    described = _build_schema(schema) if schema else {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    found = build_type_schemas(key) if key else {name: described}
    items = {"type": "array", "items": {"$ref": f"{REFERENCE}{name}"}}
    return {
        **found,
        name: {**found[name], "x-kubernetes-group-version-kind": [_group_version_kind(resource)]},
        f"{name}List": {"type": "object", "required": ["items"], "properties": {"items": items}},
    }


def _type_key(resource: Resource) -> str:
    return find_message_key(resource.group, resource.version, resource.kind)


def _group_version_kind(resource: Resource) -> Json:
    return {"group": resource.group, "kind": resource.kind, "version": resource.version}


def _paths(resource: Resource) -> Json:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    cluster_path = f"{root}/{resource.plural}"
    collection_path = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else cluster_path
    found = {collection_path: _operations(resource, collection_path, _COLLECTION)}
    if collection_path != cluster_path:
        found[cluster_path] = _operations(resource, cluster_path, {"get": "list"})
    object_path = f"{collection_path}/{{name}}"
    found[object_path] = _operations(resource, object_path, _OBJECT)
    for name in resource.subresources:
        found[f"{object_path}/{name}"] = _operations(resource, object_path, _SUBRESOURCES[name])
    return found


def _operations(resource: Resource, path: str, methods: Mapping[str, str]) -> Json:
    found: Json = {method: _operation(resource, method, action) for method, action in methods.items()}
    placed = [name for name in ("name", "namespace") if f"{{{name}}}" in path]
    return found | {"parameters": _parameters(placed, "path")} if placed else found


def _operation(resource: Resource, method: str, action: str) -> Json:
    schema = {"$ref": f"{REFERENCE}{_schema_name(resource)}{'List' if action == 'list' else ''}"}
    response = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    found: Json = {
        "responses": {"200": response},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _group_version_kind(resource),
    }
    # This parameter shows kubectl that the server validates fields.
    return found | {"parameters": _parameters(("dryRun", "fieldValidation"), "query")} if method in _WRITES else found


def _parameters(names: Sequence[str], where: str) -> list[Json]:
    required = {"required": True} if where == "path" else {}
    return [{"name": name, "in": where, **required, "schema": {"type": "string"}} for name in names]


def _build_schema(schema: Schema) -> Json:
    """Return an OpenAPI schema with the extensions of a CustomResourceDefinition."""
    if schema.type == "any":
        return {"x-kubernetes-preserve-unknown-fields": True}
    if schema.type == "quantity":
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    found: Json = {"type": "object" if schema.type == "map" else schema.type}
    if schema.description:
        found["description"] = schema.description
    if schema.format:
        found["format"] = schema.format
    if schema.properties:
        found["properties"] = {name: _build_schema(inner) for name, inner in schema.properties.items()}
    if schema.required:
        found["required"] = list(schema.required)
    if schema.type == "map" and not schema.items:
        found["x-kubernetes-preserve-unknown-fields"] = True
    if schema.items:
        found["additionalProperties" if schema.type == "map" else "items"] = _build_schema(schema.items)
    return found | _build_constraints(schema)


def _build_constraints(schema: Schema) -> Json:
    found: Json = {
        "default": schema.default,
        "minimum": schema.minimum,
        "minLength": schema.min_length or None,
        "maxLength": schema.max_length,
        "maxItems": schema.max_items,
        "enum": list(schema.enum) or None,
    }
    found = {name: value for name, value in found.items() if value is not None}
    if schema.keys:
        found |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(schema.keys)}
    rules = [{"rule": rule.cel, "message": rule.message} for rule in schema.rules]
    rules += [{"rule": "self == oldSelf", "message": "field is immutable"}] if schema.immutable else []
    return found | ({"x-kubernetes-validations": rules} if rules else {})
