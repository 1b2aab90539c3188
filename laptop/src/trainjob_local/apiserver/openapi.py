"""The OpenAPI v3 documents, made from the schemas of this package.

They are sufficient for `kubectl explain`, for kubectl's validation, and for clients that read the fields of a resource.
Source of the shape: kube-apiserver 1.36.3 (kube-openapi, and apiextensions-apiserver `pkg/controller/openapi`).
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trainjob_local.apiserver.checks import SCHEMAS
from trainjob_local.apiserver.resources import Resource, by_group_version
from trainjob_local.apiserver.schema import Field

__all__ = ["openapi", "openapi_index"]

Json = dict[str, Any]

_REFERENCE = "#/components/schemas/"
_COLLECTION = {"get": "list", "post": "post", "delete": "deletecollection"}
_OBJECT = {"get": "get", "put": "put", "patch": "patch", "delete": "delete"}
_SUBRESOURCES: Mapping[str, Mapping[str, str]] = {
    "status": {"get": "get", "put": "put", "patch": "patch"},
    "log": {"get": "get"},
    "binding": {"post": "post"},
    "token": {"post": "post"},
}
_WRITES = ("post", "put", "patch")


def openapi_index(group_versions: Iterable[tuple[str, str]]) -> Json:
    """Return the index of the documents; the URL of a document contains its hash."""
    paths = {}
    for group, version in group_versions:
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={_digest(group, version)}"}
    return {"paths": paths}


@functools.cache
def openapi(group: str, version: str) -> Json:
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
    return hashlib.sha256(json.dumps(openapi(group, version), sort_keys=True).encode()).hexdigest().upper()


def _name(resource: Resource) -> str:
    """Return the name of a schema, such as `org.kubeflow.trainer.v1alpha1.TrainJob`."""
    group = resource.group
    prefix = ".".join(reversed(group.split("."))) if "." in group else f"io.k8s.api.{group or 'core'}"
    return f"{prefix}.{resource.version}.{resource.kind}"


def _schemas(resource: Resource) -> Json:
    shape, name = SCHEMAS.get(resource.plural), _name(resource)
    described = _schema(shape) if shape else {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    items = {"type": "array", "items": {"$ref": f"{_REFERENCE}{name}"}}
    return {
        name: {**described, "x-kubernetes-group-version-kind": [_kind(resource)]},
        f"{name}List": {"type": "object", "required": ["items"], "properties": {"items": items}},
    }


def _kind(resource: Resource) -> Json:
    return {"group": resource.group, "kind": resource.kind, "version": resource.version}


def _paths(resource: Resource) -> Json:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    everywhere = f"{root}/{resource.plural}"
    many = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else everywhere
    found = {many: _operations(resource, many, _COLLECTION)}
    if many != everywhere:
        found[everywhere] = _operations(resource, everywhere, {"get": "list"})
    one = f"{many}/{{name}}"
    found[one] = _operations(resource, one, _OBJECT)
    for name in resource.subresources:
        found[f"{one}/{name}"] = _operations(resource, one, _SUBRESOURCES[name])
    return found


def _operations(resource: Resource, path: str, methods: Mapping[str, str]) -> Json:
    found: Json = {method: _operation(resource, method, action) for method, action in methods.items()}
    placed = [name for name in ("name", "namespace") if f"{{{name}}}" in path]
    return found | {"parameters": _parameters(placed, "path")} if placed else found


def _operation(resource: Resource, method: str, action: str) -> Json:
    schema = {"$ref": f"{_REFERENCE}{_name(resource)}{'List' if action == 'list' else ''}"}
    answer = {"description": "OK", "content": {"application/json": {"schema": schema}}}
    found: Json = {
        "responses": {"200": answer},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _kind(resource),
    }
    # From this parameter kubectl learns that the server validates fields.
    return found | {"parameters": _parameters(("dryRun", "fieldValidation"), "query")} if method in _WRITES else found


def _parameters(names: Sequence[str], where: str) -> list[Json]:
    required = {"required": True} if where == "path" else {}
    return [{"name": name, "in": where, **required, "schema": {"type": "string"}} for name in names]


def _schema(shape: Field) -> Json:
    """Return an OpenAPI schema with the extensions of a CustomResourceDefinition."""
    if shape.type == "any":
        return {"x-kubernetes-preserve-unknown-fields": True}
    if shape.type == "quantity":
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    found: Json = {"type": "object" if shape.type == "map" else shape.type}
    if shape.note:
        found["description"] = shape.note
    if shape.format:
        found["format"] = shape.format
    if shape.properties:
        found["properties"] = {name: _schema(inner) for name, inner in shape.properties.items()}
    if shape.required:
        found["required"] = list(shape.required)
    if shape.type == "map" and not shape.items:
        found["x-kubernetes-preserve-unknown-fields"] = True
    if shape.items:
        found["additionalProperties" if shape.type == "map" else "items"] = _schema(shape.items)
    return found | _limits(shape)


def _limits(shape: Field) -> Json:
    found: Json = {
        "default": shape.default,
        "minimum": shape.minimum,
        "minLength": shape.min_length or None,
        "maxLength": shape.max_length,
        "maxItems": shape.max_items,
        "enum": list(shape.enum) or None,
    }
    found = {name: value for name, value in found.items() if value is not None}
    if shape.keys:
        found |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(shape.keys)}
    rules = [{"rule": rule.cel, "message": rule.message} for rule in shape.rules]
    rules += [{"rule": "self == oldSelf", "message": "field is immutable"}] if shape.immutable else []
    return found | ({"x-kubernetes-validations": rules} if rules else {})
