"""Handlers of the verbs over HTTP; they call the methods of the registry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from trainjob_local.apiserver.event_conversion import encode_as_served, from_events_v1, to_events_v1
from trainjob_local.apiserver.http_messages import (
    StreamResponse,
    deletion_status,
    json_response,
    read_delete_options,
    read_json,
    read_patch,
    read_validated_json,
)
from trainjob_local.apiserver.listing import encode_items, encode_list, select_objects
from trainjob_local.apiserver.log_stream import LogSource, LogStream, parse_log_request
from trainjob_local.apiserver.registry import Registry
from trainjob_local.apiserver.request_parsing import (
    RequestInfo,
    parse_delete_options,
    parse_list_options,
    parse_minimum_version,
    parse_write_options,
)
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.server_side_apply import check_configuration
from trainjob_local.apiserver.status_errors import StatusError, bad_request, not_found, too_large_version
from trainjob_local.apiserver.store import encode_json
from trainjob_local.apiserver.tables import TableFormat, build_metadata_list, parse_table_format, prefers_metadata
from trainjob_local.apiserver.tokens import User
from trainjob_local.apiserver.watches import WatchBroadcaster
from trainjob_local.apiserver.write_rules import WriteOptions
from trainjob_local.apiserver.writer import UNSUPPORTED_PATCH_TYPE, PatchKind
from trainjob_local.objects import utc_now

__all__ = ["Handlers", "RequestContext"]

Json = dict[str, Any]

_INTERACTIVE = ("exec", "attach", "portforward")
_INTERACTIVE_TEXT = (
    "the laptop cluster does not support {} of pods, because its containers are processes of this machine; "
    "`status.containerStatuses[*].containerID` of the pod has their process IDs"
)
_ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True)
class RequestContext:
    """One request that has passed authentication and authorization.

    Attributes:
        request: request of Starlette.
        info: verb and target of the request.
        resource: the resource in the API group that the client uses.
        user: user that sent the request.
    """

    request: Request
    info: RequestInfo
    resource: Resource
    user: User


class Handlers:
    """Handlers of requests for resources.

    Args:
        registry: registry of the objects.
        broadcaster: broadcaster of changes to the open watches.
        logs: function that returns logs of pods; None if there is no kubelet.
    """

    def __init__(self, registry: Registry, broadcaster: WatchBroadcaster, logs: LogSource | None) -> None:
        self._registry, self._broadcaster, self._logs = registry, broadcaster, logs

    async def handle(self, context: RequestContext) -> Response:
        """Handle a request and return the response.

        Raises:
            StatusError: any error that the client has to get as a Status.
        """
        info, resource = context.info, context.resource
        if info.subresource and info.subresource not in resource.subresources:
            if info.subresource in _INTERACTIVE and resource.plural == "pods":
                raise StatusError(501, "NotImplemented", _INTERACTIVE_TEXT.format(info.subresource), details={})
            raise not_found(resource, info.name) if resource.custom else _unknown_resource_error()
        special = self._find_subresource_handler(info.subresource, info.verb)
        if special:
            return await special(context)
        if resource.namespaced and not info.namespace and info.verb not in _READS:
            if resource.custom:
                return PlainTextResponse("404 page not found\n", 404)
            raise _method_not_allowed_error()
        handler = self._find_verb_handler(info, resource)
        return await handler(context)

    def _find_subresource_handler(
        self, subresource: str, verb: str
    ) -> Callable[[RequestContext], Awaitable[Response]] | None:
        found = {("log", "get"): self._log, ("binding", "create"): self._bind, ("token", "create"): self._create_token}
        return found.get((subresource, verb))

    def _find_verb_handler(
        self, info: RequestInfo, resource: Resource
    ) -> Callable[[RequestContext], Awaitable[Response]]:
        if info.subresource not in ("", "status"):
            raise _method_not_allowed_error()
        handlers = {"get": self._get, "update": self._update, "patch": self._patch}
        if not info.subresource:
            handlers |= {
                "list": self._list,
                "watch": self._watch,
                "create": self._create,
                "delete": self._delete,
                "deletecollection": self._delete_collection,
            }
        if info.subresource and resource.custom and info.verb not in handlers:
            text = f'{info.verb} is not supported on resources of kind "{resource.qualified_name}"'
            raise StatusError(405, "MethodNotAllowed", text, details={"group": resource.group, "kind": resource.plural})
        if info.verb not in handlers or (info.verb == "create" and info.name):
            raise _method_not_allowed_error()
        if info.verb in ("update", "patch") and not info.name:
            raise bad_request("name must be provided") if resource.custom else _method_not_allowed_error()
        if (info.verb, resource.plural) == ("deletecollection", "namespaces"):
            raise _method_not_allowed_error()
        return handlers[info.verb]

    # -- reading --------------------------------------------------------------------------------------------------

    async def _get(self, context: RequestContext) -> Response:
        minimum_version = parse_minimum_version(context.request.query_params)
        with self._registry.lock:
            stored = self._registry.get_stored(context.resource, context.info.name, context.info.namespace)
            if minimum_version > self._registry.store.version:
                raise too_large_version(minimum_version, self._registry.store.version)
        if table := _parse_table_format(context.request):
            version = stored.body["metadata"]["resourceVersion"]
            return json_response(table.build(context.resource, [stored], {"resourceVersion": version}))
        return json_response(encode_as_served(context.resource, stored))

    async def _list(self, context: RequestContext) -> Response:
        options = parse_list_options(context.request.query_params, watch=False)
        metadata, found = select_objects(self._registry, context.resource, context.info.namespace, options)
        if table := _parse_table_format(context.request):
            return json_response(table.build(context.resource, found, metadata))
        if prefers_metadata(context.request.headers.get("accept", "")):
            return json_response(build_metadata_list(found, metadata))
        return json_response(encode_list(context.resource, metadata, found))

    async def _watch(self, context: RequestContext) -> Response:
        options = parse_list_options(context.request.query_params, watch=True)
        table = _parse_table_format(context.request)
        lines = self._broadcaster.open(context.resource, context.info.namespace, options, table)
        return StreamResponse(lines, "application/json")

    async def _log(self, context: RequestContext) -> Response:
        stored = self._registry.get_stored(context.resource, context.info.name, context.info.namespace)
        log_request = parse_log_request(stored, context.request.query_params, utc_now())
        if not stored.body["spec"].get("nodeName"):
            return Response(status_code=204)
        if self._logs is None:
            raise StatusError(500, "InternalError", "Internal error occurred: no kubelet runs that could return logs")
        stream = LogStream(self._logs, log_request, asyncio.get_running_loop())
        return StreamResponse(await stream.start(), "text/plain")

    # -- writing --------------------------------------------------------------------------------------------------

    async def _create(self, context: RequestContext) -> Response:
        body = await read_json(context.request, context.resource.kind)
        options = _parse_options(context.request, "CreateOptions")
        created = self._registry.create(
            context.resource.plural, _to_stored_version(context.resource, body), context.info.namespace, options=options
        )
        return _object_response(context.resource, created, 201, options.warnings)

    async def _update(self, context: RequestContext) -> Response:
        body, info = await read_json(context.request, context.resource.kind), context.info
        if isinstance(body, dict):
            _check_name(_metadata_name(body), info.name)
        options = _parse_options(context.request, "UpdateOptions")
        converted = _to_stored_version(context.resource, body)
        updated = self._registry.update(
            context.resource.plural, converted, info.namespace, subresource=info.subresource, options=options
        )
        return _object_response(context.resource, updated, 200, options.warnings)

    async def _patch(self, context: RequestContext) -> Response:
        info, resource = context.info, context.resource
        kind = _parse_patch_kind(context.request.headers.get("content-type", ""), resource)
        body = await read_patch(context.request)
        options = _parse_options(context.request, "PatchOptions")
        if kind == PatchKind.APPLY:
            body = check_configuration(resource, info.name, body, context.request.query_params)
            if not info.subresource and not self._exists(context):
                created = self._registry.create(resource.plural, body, info.namespace, options=options)
                return _object_response(resource, created, 201, options.warnings)
        converted = _to_stored_version(resource, body) if isinstance(body, dict) else body
        patched = self._registry.patch(
            resource.plural,
            info.name,
            converted,
            info.namespace,
            subresource=info.subresource,
            kind=kind,
            options=options,
        )
        return _object_response(resource, patched, 200, options.warnings)

    def _exists(self, context: RequestContext) -> bool:
        namespace = context.info.namespace if context.resource.namespaced else ""
        return self._registry.store.get(context.resource, namespace, context.info.name) is not None

    # -- deleting -------------------------------------------------------------------------------------------------

    async def _delete(self, context: RequestContext) -> Response:
        body = await read_delete_options(context.request)
        options = parse_delete_options(context.request.query_params, body)
        resource, info = context.resource, context.info
        deleted, removed = self._registry.delete_with_options(resource, info.name, info.namespace, options)
        warnings = [_ORPHANS] if resource.orphans_dependents and not options.propagation else []
        if removed and not resource.returns_deleted:
            return json_response(deletion_status(resource, info.name, deleted["metadata"]["uid"]), warnings=warnings)
        return _object_response(resource, deleted, 200, warnings)

    async def _delete_collection(self, context: RequestContext) -> Response:
        body = await read_delete_options(context.request)
        query, resource = context.request.query_params, context.resource
        chosen, options = parse_list_options(query, watch=False), parse_delete_options(query, body)
        namespace = context.info.namespace
        with self._registry.lock:
            selected = self._registry.list_stored(resource, namespace, chosen.label_selector, chosen.field_selector)
            self._registry.delete_collection(
                resource.plural, namespace, labels=chosen.label_selector, fields=chosen.field_selector, options=options
            )
            head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
            metadata = {"resourceVersion": str(self._registry.store.version)}
        items = b",".join(encode_items(resource, selected))
        return json_response(encode_json({**head, "metadata": metadata})[:-1] + b',"items":[' + items + b"]}")

    # -- the rest -------------------------------------------------------------------------------------------------

    async def _bind(self, context: RequestContext) -> Response:
        body, name = await read_validated_json(context.request, "Binding"), context.info.name
        if (body.get("metadata") or {}).get("name") != name:
            raise bad_request("name in URL does not match name in Binding object")
        node = (body.get("target") or {}).get("name")
        if not node:
            raise StatusError(500, "", "target.name: Required value")
        self._registry.bind(name, node, context.info.namespace)
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return json_response(status, 201)

    async def _create_token(self, context: RequestContext) -> Response:
        body = await read_validated_json(context.request, "TokenRequest")
        made = self._registry.tokens.create(context.info.namespace, context.info.name, body.get("spec"))
        return json_response(made, 201)


_READS = ("get", "list", "watch")


def _parse_table_format(request: Request) -> TableFormat | None:
    return parse_table_format(request.headers.get("accept", ""), request.query_params)


def _check_name(body_name: str, url_name: str) -> None:
    if not body_name:
        raise bad_request(f"the name of the object ({url_name} based on URL) was undeterminable: name must be provided")
    if body_name != url_name:
        raise bad_request(f"the name of the object ({body_name}) does not match the name on the URL ({url_name})")


def _unknown_resource_error() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def _method_not_allowed_error() -> StatusError:
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def _parse_patch_kind(content_type: str, resource: Resource) -> PatchKind:
    media_type = content_type.partition(";")[0].strip()
    try:
        return PatchKind(media_type)
    except ValueError as error:
        if media_type == "application/json" and not resource.custom:
            raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={}) from error
        raise StatusError(415, "UnsupportedMediaType", UNSUPPORTED_PATCH_TYPE) from error


def _metadata_name(body: Any) -> str:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _to_stored_version(resource: Resource, body: Any) -> Any:
    """Convert the body of a request to the shape in which the object is stored."""
    return from_events_v1(body) if resource.stored_as and isinstance(body, dict) else body


def _parse_options(request: Request, kind: str) -> WriteOptions:
    """Parse the options of a write.

    The options' list of warnings is also kept in the request, so that an error response has the warnings, too.
    """
    options = parse_write_options(request.query_params, kind)
    request.state.warnings = options.warnings
    return options


def _object_response(resource: Resource, body: Json, code: int, warnings: list[str]) -> Response:
    return json_response(to_events_v1(body) if resource.stored_as else body, code, warnings=warnings)
