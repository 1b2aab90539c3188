"""Discovery documents: versions, groups, resources, and the index of OpenAPI documents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainjob_local.apiserver.access_reviews import REVIEWS
from trainjob_local.apiserver.openapi import build_openapi, build_openapi_index
from trainjob_local.apiserver.resources import RESOURCES, by_group_version

__all__ = ["VERSION", "find_document"]

Json = dict[str, Any]

VERSION = "v1.36.3"
"""Version of Kubernetes whose behaviour this server reproduces."""

_VERBS = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
_GROUPS = {resource.group: resource.version for resource in RESOURCES} | {group: "v1" for group, _ in REVIEWS.values()}
_SUBRESOURCES: Mapping[str, tuple[str, Json, list[str]]] = {
    "log": ("Pod", {}, ["get"]),
    "binding": ("Binding", {}, ["create"]),
    "token": ("TokenRequest", {"group": "authentication.k8s.io", "version": "v1"}, ["create"]),
}


def find_document(path: str, address: str) -> Json | None:
    """Return the document at a path that names no resource.

    Args:
        path: path of the URL.
        address: host and port of the server.

    Returns:
        The document, or None if the server has none at this path.
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
        return build_openapi_index(sorted(_GROUPS.items()))
    if path.startswith("/openapi/v3/"):
        found = _parse_group_version(path.removeprefix("/openapi/v3"))
        return build_openapi(*found) if found else None
    found = _parse_group_version(path)
    if found:
        return _resource_list(*found)
    group = re.fullmatch("/apis/([^/]+)", path)
    if group and group[1] in _GROUPS:
        return {"kind": "APIGroup", "apiVersion": "v1", **_group(group[1])}
    return None


def _parse_group_version(path: str) -> tuple[str, str] | None:
    found = re.fullmatch("/api/(v1)|/apis/([^/]+)/([^/]+)", path)
    if found is None:
        return None
    group, version = (found[2], found[3]) if found[2] else ("", found[1])
    return (group, version) if _GROUPS.get(group) == version else None


def _version() -> Json:
    major, minor = VERSION[1:].split(".")[:2]
    return {"major": major, "minor": minor, "gitVersion": VERSION, "gitCommit": "", "gitTreeState": "", "buildDate": "",
            "goVersion": "", "compiler": "trainjob_local", "platform": ""}  # fmt: skip


def _group(name: str) -> Json:
    version = {"groupVersion": f"{name}/{_GROUPS[name]}", "version": _GROUPS[name]}
    return {"name": name, "versions": [version], "preferredVersion": version}


def _resource_list(group: str, version: str) -> Json:
    listed: list[Json] = []
    for plural, (review_group, kind) in REVIEWS.items():
        if group == review_group:
            names = {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind}
            listed.append({**names, "verbs": ["create"]})
    for resource in by_group_version(group, version):
        entry: Json = {
            "name": resource.plural,
            "singularName": resource.kind.lower(),
            "namespaced": resource.namespaced,
        }
        names = {"shortNames": list(resource.short_names)} if resource.short_names else {}
        names |= {"categories": list(resource.categories)} if resource.categories else {}
        listed.append({**entry, "kind": resource.kind, "verbs": _VERBS, **names})
        for name in resource.subresources:
            kind, more, verbs = _SUBRESOURCES.get(name, (resource.kind, {}, ["get", "patch", "update"]))
            below = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
            listed.append({**below, **more, "kind": kind, "verbs": verbs})
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": listed}
