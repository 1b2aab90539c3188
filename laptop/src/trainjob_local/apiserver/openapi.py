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
from trainjob_local.apiserver.trainjob_descriptions import describe_trainjob
from trainjob_local.apiserver.type_schemas import REFERENCE, build_type_schemas, type_schema_name, types_digest

__all__ = ["build_openapi", "build_openapi_index", "describe_custom_kind"]

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
    schemas = {resource.plural: describe_custom_kind(resource) for resource in by_group_version(group, version)}
    return hashlib.sha256(json.dumps([group, version, schemas, types_digest()]).encode()).hexdigest().upper()


def _schema_name(resource: Resource) -> str:
    """Return the name of a schema, such as `org.kubeflow.trainer.v1alpha1.TrainJob`."""
    if key := _type_key(resource):
        return type_schema_name(key)
    return f"{'.'.join(reversed(resource.group.split('.')))}.{resource.version}.{resource.kind}"


def _schemas(resource: Resource) -> Json:
    name, key = _schema_name(resource), _type_key(resource)
    found = build_type_schemas(key) if key else {name: describe_custom_kind(resource)}
    items = {"type": "array", "items": {"$ref": f"{REFERENCE}{name}"}}
    return {
        **found,
        name: {**found[name], "x-kubernetes-group-version-kind": [_group_version_kind(resource)]},
        f"{name}List": {"type": "object", "required": ["items"], "properties": {"items": items}},
    }


def describe_custom_kind(resource: Resource) -> Json:
    """Return the schema of a kind that is not Kubernetes' own."""
    if resource.plural == "trainjobs":
        return describe_trainjob()
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


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
