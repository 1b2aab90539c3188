"""Tables of meta.k8s.io/v1, which kubectl requests to print objects, and lists without the objects' content.

Source: k8s.io/apiserver 0.36 `pkg/endpoints/handlers/response.go` and `pkg/endpoints/handlers/negotiation`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainjob_local.apiserver.event_conversion import to_events_v1
from trainjob_local.apiserver.printer_columns import Printer, find_printer
from trainjob_local.apiserver.request_parsing import Query
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.status_errors import FieldProblem, bad_request
from trainjob_local.apiserver.store import StoredObject
from trainjob_local.objects import utc_now

__all__ = ["TableFormat", "build_metadata_list", "parse_table_format", "prefers_metadata"]

Json = dict[str, Any]

_GROUP, _VERSION = "meta.k8s.io", "v1"
_INCLUDES = ("None", "Metadata", "Object")
_FORMS = ("Table", "PartialObjectMetadataList")


@dataclass(frozen=True)
class TableFormat:
    """The format of the tables that a client requests.

    Attributes:
        include: part of an object that its row contains: `None`, `Metadata` or `Object`.
    """

    include: str = "Metadata"

    def build(self, resource: Resource, objects: Iterable[StoredObject], metadata: Mapping[str, Any]) -> Json:
        """Return a table.

        Args:
            resource: resource of the objects.
            objects: the objects, each of which gets a row.
            metadata: metadata of the list.
        """
        printer = find_printer(resource.plural)
        columns = [_column_definition(resource, name) for name in printer.columns]
        return {
            "kind": "Table",
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "metadata": dict(metadata),
            "columnDefinitions": columns,
            "rows": [
                {"cells": _build_cells(printer, stored.body), **self._included(resource, stored)} for stored in objects
            ],
        }

    def _included(self, resource: Resource, stored: StoredObject) -> Json:
        if self.include == "None":
            return {}
        body = to_events_v1(stored.body) if resource.stored_as else stored.body
        if self.include == "Object":
            return {"object": body}
        return {"object": _build_partial_object(body)}


def parse_table_format(accept: str, query: Query) -> TableFormat | None:
    """Return the table format that a client accepts; None if it prefers plain JSON.

    Args:
        accept: header `Accept`.
        query: query of the URL, with `includeObject`.

    Raises:
        StatusError: 400 if `includeObject` has an unknown value.
    """
    if _find_form(accept) != "Table":
        return None
    include = query.get("includeObject") or "Metadata"
    if include not in _INCLUDES:
        allowed = "must be 'Metadata', 'Object', 'None', or empty"
        problem = FieldProblem("includeObject", "Invalid value", json.dumps(include), allowed)
        raise bad_request(f"Unable to convert to Table as requested: {problem}")
    return TableFormat(include)


def prefers_metadata(accept: str) -> bool:
    """Return whether a client accepts a list that has only the metadata of the objects."""
    return _find_form(accept) == "PartialObjectMetadataList"


def build_metadata_list(objects: Iterable[StoredObject], metadata: Mapping[str, Any]) -> Json:
    """Return a list that has only the metadata of the objects.

    Args:
        objects: the objects.
        metadata: metadata of the list.
    """
    items = [_build_partial_object(stored.body) for stored in objects]
    kind = {"kind": "PartialObjectMetadataList", "apiVersion": f"{_GROUP}/{_VERSION}"}
    return {**kind, "metadata": dict(metadata), "items": items}


def _find_form(accept: str) -> str:
    """Return the form in which a client prefers objects; empty for plain JSON."""
    for clause in accept.split(","):
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type not in ("application/json", "*/*", "application/*"):
            continue
        values = dict(parameter.partition("=")[::2] for parameter in parameters)
        if "as" not in values:
            return ""
        if values["as"] in _FORMS and (values.get("g"), values.get("v")) == (_GROUP, _VERSION):
            return values["as"]
    return ""


def _build_partial_object(body: Mapping[str, Any]) -> Json:
    kind = {"kind": "PartialObjectMetadata", "apiVersion": f"{_GROUP}/{_VERSION}"}
    return {**kind, "metadata": body["metadata"]}


def _build_cells(printer: Printer, body: Mapping[str, Any]) -> Sequence[Any]:
    """Return the cells of an object; all are empty if a field has a wrong type."""
    try:
        return printer.cells(body, utc_now())
    except (AttributeError, LookupError, TypeError, ValueError):
        return [body["metadata"]["name"] if name == "Name" else None for name in printer.columns]


def _column_definition(resource: Resource, name: str) -> Json:
    shown = name.removeprefix("+")
    date = shown == "Created At" or (shown == "Age" and resource.custom)
    return {
        "name": shown,
        "type": "date" if date else "string",
        "format": "name" if shown == "Name" else "",
        "description": "",
        "priority": int(name != shown),
    }
