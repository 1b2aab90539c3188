"""Lists of objects: whole or in pages, of the current or of an earlier version.

A list is put together from the stored JSON of its objects, without parsing it.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from trainjob_local.apiserver.event_shapes import to_shape, view_text
from trainjob_local.apiserver.refusals import Refusal, bad_request, too_large_version
from trainjob_local.apiserver.registry import Registry, parse_selectors
from trainjob_local.apiserver.requests import ListOptions
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.store import Stored, encoded

__all__ = ["list_text", "selects", "texts_of"]

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class _Page(NamedTuple):
    """The start of a page of a list.

    Attributes:
        version: resourceVersion of the list; 0 for the current one.
        after: namespace and name of the last object on the previous page.
    """

    version: int
    after: tuple[str, str]


def list_text(registry: Registry, view: Resource, namespace: str, options: ListOptions) -> bytes:
    """Return the JSON of a list.

    Raises:
        Refusal: 400 if an option is not valid; 410 if the requested version is too old; 504 if it does not exist yet.
    """
    chosen = selects(view, options)
    with registry.lock:
        page = _page(options)
        version, found = _at(registry, view, namespace, options, page)
    selected = [stored for stored in found if stored.key > page.after and chosen(stored)]
    limit = options.limit if options.version != "0" else 0  # a list from the watch cache has no pages
    shown = selected[:limit] if limit else selected
    metadata: dict[str, Any] = {**({"continue": ""} if view.custom else {}), "resourceVersion": str(version)}
    if len(shown) < len(selected):
        metadata["continue"] = _token(version, shown[-1].key)
        if not options.labels and not options.fields:
            metadata["remainingItemCount"] = len(selected) - len(shown)
    head = {"kind": f"{view.kind}List", "apiVersion": view.api_version, "metadata": metadata}
    return encoded(head)[:-1] + b',"items":[' + b",".join(texts_of(view, shown)) + b"]}"


def selects(view: Resource, options: ListOptions) -> Any:
    """Return a function that tests whether the selectors of a list select a stored object.

    Raises:
        Refusal: 400 if a selector is not valid.
    """
    labels, fields = parse_selectors(view, options.labels, options.fields)
    if view.served_from and fields.terms:
        return lambda stored: labels.matches(stored.body) and fields.matches(to_shape(stored.body))
    return lambda stored: labels.matches(stored.body) and fields.matches(stored.body)


def texts_of(view: Resource, found: list[Stored]) -> list[bytes]:
    """Return the JSON of each item of a list.

    Items of built-in kinds have no `kind` and no `apiVersion`.
    """
    if view.custom:
        return [stored.text for stored in found]
    skipped = len(encoded({"kind": view.kind, "apiVersion": view.api_version}))
    return [b"{" + view_text(view, stored)[skipped:] for stored in found]


def _at(
    registry: Registry, view: Resource, namespace: str, options: ListOptions, page: _Page
) -> tuple[int, list[Stored]]:
    store = registry.store
    if page.version:
        try:
            return page.version, store.at(view, page.version, namespace)
        except Refusal as refusal:
            if refusal.code != 410:
                raise
            again = _token(0, page.after)
            raise Refusal(410, "Expired", _TOO_OLD, metadata={"continue": again}) from refusal
    wanted = 0 if options.token else options.number(watch=False)
    if wanted > store.version:
        raise too_large_version(wanted, store.version)
    exact = options.match == "Exact" or (options.limit and wanted and not options.match)
    if exact and not options.token:
        return wanted, store.at(view, wanted, namespace)
    return store.version, store.all(view, namespace)


def _token(version: int, key: tuple[str, str]) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(key)})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _page(options: ListOptions) -> _Page:
    if not options.token:
        return _Page(0, ("", ""))
    try:
        padded = options.token + "=" * (-len(options.token) % 4)
        found = json.loads(base64.b64decode(padded, altchars="-_", validate=True))
        namespace, _, name = str(found["start"]).partition("/")
        page = _Page(int(found["rv"]), (namespace, name))
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if options.version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return page
