"""Kinds of Kubernetes objects, and functions that list all objects of a kind."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.client.api_errors import repeated_continue_token
from trainjob.client.response_checks import ResponseCheck, check_list_of, check_namespaced_object, check_object
from trainjob.errors import Expired, InvalidSpec, Problem

# Parsing a page's JSON blocks all other threads, and so the event loop: 100 pods are about 1 MB, or 10 ms.
_PAGE = 100
_TRIES = 3
# A DNS subdomain (Kubernetes 1.36, IsDNS1123Subdomain); the name of a namespace has no dots.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Resource:
    """One kind of Kubernetes object.

    Attributes:
        plural: plural name in the URL, such as `trainjobs`.
        api_path: URL path of the API group and version, such as `/apis/batch/v1`.
        selector: label selector of an informer's lists and watches.
        kept_spec_fields: fields of the spec that an informer keeps; empty keeps all fields. `trainer.numNodes` keeps
            only this field of `trainer`, and `containers.resources` only this field of each container.
        namespaced: whether objects of this kind belong to a namespace.
    """

    plural: str
    api_path: str
    selector: str
    kept_spec_fields: tuple[str, ...] = ()
    namespaced: bool = True

    @property
    def check(self) -> ResponseCheck:
        """The check of a response that must be one object of this kind."""
        return check_namespaced_object if self.namespaced else check_object

    def collection_path(self, namespace: str) -> str:
        """Return the URL path of the objects of a namespace.

        Raises:
            InvalidSpec: the namespace is not a Kubernetes name, and could lead to another path.
        """
        within = f"/namespaces/{_check_name(namespace, 'namespace')}" if self.namespaced else ""
        return f"{self.api_path}{within}/{self.plural}"

    def object_path(self, namespace: str, name: str) -> str:
        """Return the URL path of one object; with an empty name, it would be that of all objects.

        Raises:
            InvalidSpec: the namespace or the name is empty or not a Kubernetes name.
        """
        return f"{self.collection_path(namespace)}/{_check_name(name, 'name')}"

    def without_unused_fields(self, obj: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return an object without the fields that no event handler reads.

        `managedFields` alone are half of a pod's size. The objects in an informer's cache also make each full garbage
        collection longer, which stops all threads.
        """
        kept = {**obj, "metadata": {name: value for name, value in obj["metadata"].items() if name != "managedFields"}}
        if self.kept_spec_fields and "spec" in obj:
            kept["spec"] = _select_fields(obj["spec"], self.kept_spec_fields)
        return kept


def _select_fields(values: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    selected: dict[str, Any] = {}
    for path in paths:
        name, _, nested = path.partition(".")
        value = values.get(name)
        if nested and isinstance(value, list):
            selected[name] = [_select_fields(item, [nested]) for item in value if isinstance(item, Mapping)]
        elif value is not None:
            selected[name] = _select_fields(value, [nested]) if nested and isinstance(value, Mapping) else value
    return selected


def _check_name(name: str, field: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidSpec(
            Problem(field, repr(name[:80]), "it must be a Kubernetes name: lower case letters, digits, - and .")
        )
    return name


EVENTS = Resource("events", "/api/v1", "")


def list_pages(
    request: Callable[..., dict[str, Any]],
    path: str,
    *,
    doing: str,
    query: Mapping[str, Any],
    check: ResponseCheck = check_namespaced_object,
) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """Yield the objects of a collection page by page, with the collection's resourceVersion.

    Args:
        request: function that sends one request, as [trainjob.client.http_client.HttpClient.request][] does.
        path: URL path of the collection.
        doing: purpose of the request, for error messages.
        query: query parameters, such as the label or field selector.
        check: check of each object.

    Raises:
        Expired: reading took so long that the server no longer has the rest of the list.
        InvalidResponse: a page is not a valid list, or one of its objects does not pass the check.
        ClusterError: a page could not be read, or the server repeats a `continue` token.
    """
    token, used_tokens = "", set[str]()
    while token not in used_tokens:
        used_tokens.add(token)
        parameters = {**query, "limit": _PAGE, "continue": token or None}
        page = request("GET", path, doing=doing, query=parameters, check=check_list_of(check))
        token = page["metadata"].get("continue") or ""
        yield page["items"] or [], page["metadata"]["resourceVersion"]
        if not token:
            return
    raise repeated_continue_token(token, doing=doing)


def list_all(
    request: Callable[..., dict[str, Any]],
    path: str,
    *,
    doing: str,
    query: Mapping[str, Any],
    check: ResponseCheck = check_namespaced_object,
) -> list[dict[str, Any]]:
    """Return all objects of a collection at one resourceVersion; see [list_pages][].

    If the list expires while its pages are read, it is read again from the first page, up to three times in total.

    Raises:
        ClusterError: the objects could not be read.
    """

    def read() -> list[dict[str, Any]]:
        return [item for items, _ in list_pages(request, path, doing=doing, query=query, check=check) for item in items]

    for _ in range(_TRIES - 1):
        with contextlib.suppress(Expired):
            return read()
    return read()


def get_resource_version(request: Callable[..., dict[str, Any]], path: str, *, doing: str) -> str:
    """Return the current resourceVersion of a list by requesting only one object.

    Raises:
        ClusterError: the list could not be read; see [list_pages][].
    """
    page = request("GET", path, doing=doing, query={"limit": 1}, check=check_list_of(check_object))
    return str(page["metadata"]["resourceVersion"])
