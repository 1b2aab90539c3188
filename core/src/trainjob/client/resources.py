"""The kinds of objects that are asked for, and reading all of one kind."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.client.api_errors import not_understood
from trainjob.client.response_checks import ResponseCheck, check_list_of, check_namespaced_object, check_object
from trainjob.errors import Expired, InvalidSpec, Problem

# Reading a page's JSON keeps all other threads, so an event loop, from running: 100 pods are about 1 MB, or 10 ms.
_PAGE = 100
_TRIES = 3
# A DNS subdomain (Kubernetes 1.36, IsDNS1123Subdomain); a namespace is one without dots.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True)
class Resource:
    """One kind of object.

    Attributes:
        plural: such as `trainjobs`.
        prefix: the API group's path, such as `/apis/batch/v1`.
        selector: the label selector that every list and watch uses.
        spec_kept: the fields of its spec that an informer keeps; empty keeps all.
        namespaced: whether its objects are in namespaces.
    """

    plural: str
    prefix: str
    selector: str
    spec_kept: tuple[str, ...] = ()
    namespaced: bool = True

    @property
    def check(self) -> ResponseCheck:
        """The check of one object of this kind."""
        return check_namespaced_object if self.namespaced else check_object

    def path(self, namespace: str, name: str = "") -> str:
        """The URL's path of the collection, or of one object.

        Raises:
            InvalidSpec: what is no name could lead to another path.
        """
        within = f"/namespaces/{_checked(namespace, 'namespace')}" if self.namespaced else ""
        collection = f"{self.prefix}{within}/{self.plural}"
        return f"{collection}/{_checked(name, 'name')}" if name else collection


def _checked(name: str, field: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidSpec(
            Problem(field, repr(name[:80]), "it must be a Kubernetes name: lower case letters, digits, - and .")
        )
    return name


EVENTS = Resource("events", "/api/v1", "")


def pages(
    ask: Callable[..., dict[str, Any]],
    path: str,
    *,
    doing: str,
    query: Mapping[str, Any],
    check: ResponseCheck = check_namespaced_object,
) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """All objects of a collection, page by page, each with the resourceVersion of the whole.

    Args:
        ask: sends one request, as [trainjob.client.http_client.HttpClient.request][] does.
        path: the collection's path.
        doing: what this is for, for error messages.
        query: selectors.
        check: the check of each object.

    Raises:
        Expired: reading took so long that the server does not know the rest any more.
        InvalidResponse: a page is not one, or one of its objects does not pass the check.
        ClusterError: a page could not be read.
    """
    more, before = "", set[str]()
    while more not in before:
        before.add(more)
        asked = {**query, "limit": _PAGE, "continue": more or None}
        answer = ask("GET", path, doing=doing, query=asked, check=check_list_of(check))
        more = answer["metadata"].get("continue") or ""
        yield answer["items"] or [], answer["metadata"]["resourceVersion"]
        if not more:
            return
    raise not_understood(f"its list begins anew at {more}".encode(), doing=doing)  # it would never end


def everything(
    ask: Callable[..., dict[str, Any]],
    path: str,
    *,
    doing: str,
    query: Mapping[str, Any],
    check: ResponseCheck = check_namespaced_object,
) -> list[dict[str, Any]]:
    """All objects of a collection, as of one moment; see [pages][].

    Raises:
        ClusterError: they could not be read.
    """

    def read() -> list[dict[str, Any]]:
        return [item for items, _ in pages(ask, path, doing=doing, query=query, check=check) for item in items]

    for _ in range(_TRIES - 1):
        with contextlib.suppress(Expired):
            return read()
    return read()


def newest_version(ask: Callable[..., dict[str, Any]], path: str, *, doing: str) -> str:
    """The resourceVersion that a list has now, for the price of one object; see [pages][].

    Raises:
        ClusterError: it could not be read.
    """
    answer = ask("GET", path, doing=doing, query={"limit": 1}, check=check_list_of(check_object))
    return str(answer["metadata"]["resourceVersion"])
