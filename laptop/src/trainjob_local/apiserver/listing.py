"""Lists of objects: whole or in pages, of the current or of an earlier version.

A list is put together from the stored JSON of its objects, without parsing it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from trainjob_local.apiserver.event_conversion import encode_as_served, to_events_v1
from trainjob_local.apiserver.registry import Registry, parse_selectors
from trainjob_local.apiserver.request_parsing import ListOptions
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.status_errors import StatusError, bad_request, too_large_version
from trainjob_local.apiserver.store import StoredObject, encode_json

__all__ = ["build_filter", "encode_items", "encode_list", "select_objects"]

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


def select_objects(
    registry: Registry, resource: Resource, namespace: str, options: ListOptions
) -> tuple[dict[str, Any], list[StoredObject]]:
    """Return the metadata and the objects of a list, or of one of its pages.

    Raises:
        StatusError: 400 if an option is not valid; 410 if the requested version is too old; 504 if it does not exist
            yet.
    """
    is_selected = build_filter(resource, options)
    with registry.lock:
        page = _parse_page(options)
        version, found = _list_objects_at(registry, resource, namespace, options, page)
    selected = [stored for stored in found if stored.key > page.after and is_selected(stored)]
    limit = options.limit if options.resource_version != "0" else 0  # a list from the watch cache has no pages
    shown = selected[:limit] if limit else selected
    metadata: dict[str, Any] = {**({"continue": ""} if resource.custom else {}), "resourceVersion": str(version)}
    if len(shown) < len(selected):
        metadata["continue"] = _encode_continue_token(version, shown[-1].key)
        if not options.label_selector and not options.field_selector:
            metadata["remainingItemCount"] = len(selected) - len(shown)
    return metadata, shown


def encode_list(resource: Resource, metadata: Mapping[str, Any], shown: Sequence[StoredObject]) -> bytes:
    """Return the JSON of a list; see [select_objects][]."""
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    return encode_json(head)[:-1] + b',"items":[' + b",".join(encode_items(resource, shown)) + b"]}"


def build_filter(resource: Resource, options: ListOptions) -> Any:
    """Return a function that tests whether the selectors of a list select a stored object.

    Raises:
        StatusError: 400 if a selector is not valid.
    """
    labels, fields = parse_selectors(resource, options.label_selector, options.field_selector)
    if resource.stored_as and fields.terms:
        return lambda stored: labels.matches(stored.body) and fields.matches(to_events_v1(stored.body))
    return lambda stored: labels.matches(stored.body) and fields.matches(stored.body)


def encode_items(resource: Resource, objects: Sequence[StoredObject]) -> list[bytes]:
    """Return the JSON of each item of a list.

    Items of built-in kinds have no `kind` and no `apiVersion`.
    """
    if resource.custom:
        return [stored.text for stored in objects]
    skipped = len(encode_json({"kind": resource.kind, "apiVersion": resource.api_version}))
    return [b"{" + encode_as_served(resource, stored)[skipped:] for stored in objects]


def _list_objects_at(
    registry: Registry, resource: Resource, namespace: str, options: ListOptions, page: _Page
) -> tuple[int, list[StoredObject]]:
    store = registry.store
    if page.version:
        try:
            return page.version, store.list_objects_at(resource, page.version, namespace)
        except StatusError as error:
            if error.code != 410:
                raise
            again = _encode_continue_token(0, page.after)
            raise StatusError(410, "Expired", _TOO_OLD, metadata={"continue": again}) from error
    wanted = 0 if options.continue_token else options.parse_version(watch=False)
    if wanted > store.version:
        raise too_large_version(wanted, store.version)
    exact = options.version_match == "Exact" or (options.limit and wanted and not options.version_match)
    if exact and not options.continue_token:
        return wanted, store.list_objects_at(resource, wanted, namespace)
    return store.version, store.list_objects(resource, namespace)


def _encode_continue_token(version: int, key: tuple[str, str]) -> str:
    text = json.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": "/".join(key)})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _parse_page(options: ListOptions) -> _Page:
    if not options.continue_token:
        return _Page(0, ("", ""))
    try:
        padded = options.continue_token + "=" * (-len(options.continue_token) % 4)
        found = json.loads(base64.b64decode(padded, altchars="-_", validate=True))
        namespace, _, name = str(found["start"]).partition("/")
        page = _Page(int(found["rv"]), (namespace, name))
    except (binascii.Error, ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    if options.resource_version not in ("", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")
    return page
