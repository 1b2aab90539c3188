"""What the server says about itself: versions, groups, resources, and OpenAPI made from our descriptions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from trainjob.local.apiserver.checks import SCHEMAS
from trainjob.local.apiserver.resources import RESOURCES, Resource, by_group_version
from trainjob.local.apiserver.schema import Field

__all__ = ["VERSION", "document"]

Json = dict[str, Any]

VERSION = "v1.36.3"
"""The Kubernetes version whose behaviour this server has."""

_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
_GROUPS = {resource.group: resource.version for resource in RESOURCES} | {"authorization.k8s.io": "v1"}
_SUBRESOURCES: Mapping[str, tuple[str, Json, list[str]]] = {
    "log": ("Pod", {}, ["get"]),
    "binding": ("Binding", {}, ["create"]),
    "token": ("TokenRequest", {"group": "authentication.k8s.io", "version": "v1"}, ["create"]),
}
_NUMBERS = {"int32": "int32", "int64": "int64"}


def document(path: str, address: str) -> Json | None:
    """Finds what is answered for a path that names no resource; None when there is nothing.

    Args:
        path: of the URL.
        address: host and port of the server.
    """
    path = path.rstrip("/")
    if path == "/version":
        return _version()
    if path == "/api":
        clients = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": clients}
    if path == "/apis":
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [_group(name) for name in sorted(_GROUPS) if name],
        }
    if path == "/openapi/v3":
        return _openapi_index()
    if path.startswith("/openapi/v3/"):
        found = _parts(path.removeprefix("/openapi/v3"))
        return _openapi(*found) if found else None
    found = _parts(path)
    if found:
        return _resource_list(*found)
    group = re.fullmatch("/apis/([^/]+)", path)
    if group and group[1] in _GROUPS:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(group[1])}
    return None


def _parts(path: str) -> tuple[str, str] | None:
    found = re.fullmatch("/api/(v1)|/apis/([^/]+)/([^/]+)", path)
    if found is None:
        return None
    group, version = (found[2], found[3]) if found[2] else ("", found[1])
    return (group, version) if _GROUPS.get(group) == version else None


def _version() -> Json:
    major, minor = VERSION[1:].split(".")[:2]
    return {"major": major, "minor": minor, "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "", "buildDate": "",
            "goVersion": "", "compiler": "trainjob.local", "platform": ""}  # fmt: skip


def _group(name: str) -> Json:
    version = {"groupVersion": f"{name}/{_GROUPS[name]}", "version": _GROUPS[name]}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(group: str, version: str) -> Json:
    listed: list[Json] = []
    if group == "authorization.k8s.io":
        review = {"name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview", "namespaced": False}
        listed.append({**review, "kind": "SelfSubjectAccessReview", "verbs": ["create"]})
    for resource in by_group_version(group, version):
        entry: Json = {
            "name": resource.plural,
            "singularName": resource.kind.lower(),
            "namespaced": resource.namespaced,
        }
        names = {"shortNames": list(resource.short_names)} if resource.short_names else {}
        listed.append({**entry, "kind": resource.kind, "verbs": _VERBS, **names})
        for name in resource.subresources:
            kind, more, verbs = _SUBRESOURCES.get(name, (resource.kind, {}, ["get", "patch", "update"]))
            below = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
            listed.append({**below, **more, "kind": kind, "verbs": verbs})
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}


def _openapi_index() -> Json:
    paths = {}
    for group, version in sorted(_GROUPS.items()):
        path = f"apis/{group}/{version}" if group else f"api/{version}"
        digest = hashlib.sha256(str(_openapi(group, version)).encode()).hexdigest().upper()
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
    return {"paths": paths}


def _openapi(group: str, version: str) -> Json:
    resources = by_group_version(group, version)
    schemas: Json = {}
    for resource in resources:
        name = f"{_prefix(group)}.{version}.{resource.kind}"
        identity = {"group": group, "kind": resource.kind, "version": version}
        shape = SCHEMAS.get(resource.plural)
        described = _schema(shape) if shape else {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schemas[name] = {**described, "x-kubernetes-group-version-kind": [identity]}
        items = {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}
        schemas[f"{name}List"] = {"type": "object", "required": ["items"], "properties": {"items": items}}
    paths: Json = {path: {} for resource in resources for path in _paths(resource)}
    info = {"title": "Kubernetes", "version": VERSION}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _prefix(group: str) -> str:
    """Names a group as schemas do: `org.kubeflow.trainer` for trainer.kubeflow.org."""
    return ".".join(reversed(group.split("."))) if "." in group else f"io.k8s.api.{group or 'core'}"


def _paths(resource: Resource) -> list[str]:
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    one = f"{root}/namespaces/{{namespace}}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
    return [one, f"{one}/{{name}}", *(f"{one}/{{name}}/{name}" for name in resource.subresources)]


def _schema(shape: Field) -> Json:
    """Writes a description as an OpenAPI schema with the extensions of a CustomResourceDefinition."""
    if shape.type == "any":
        return {"x-kubernetes-preserve-unknown-fields": True}
    if shape.type == "quantity":
        return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    found: Json = {"type": "object" if shape.type == "map" else shape.type}
    if shape.note:
        found["description"] = shape.note
    if shape.go in _NUMBERS:
        found["format"] = _NUMBERS[shape.go]
    if shape.properties:
        found["properties"] = {name: _schema(inner) for name, inner in shape.properties.items()}
    if shape.required:
        found["required"] = list(shape.required)
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
        "pattern": shape.pattern or None,
    }
    found = {name: value for name, value in found.items() if value is not None}
    if shape.keys:
        found |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(shape.keys)}
    rules = [{"rule": rule.cel, "message": rule.message} for rule in shape.rules]
    rules += [{"rule": "self == oldSelf", "message": "field is immutable"}] if shape.immutable else []
    return found | ({"x-kubernetes-validations": rules} if rules else {})
