"""Handlers of the verbs over HTTP; they call the methods of the registry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from trainjob_local.apiserver.answers import (
    StreamAnswer,
    json_answer,
    read_call,
    read_delete_options,
    read_json,
    read_patch,
    success,
)
from trainjob_local.apiserver.authorization import Action, Authorizer
from trainjob_local.apiserver.checks import WriteOptions
from trainjob_local.apiserver.event_shapes import from_shape, to_shape, view_text
from trainjob_local.apiserver.listing import list_text, texts_of
from trainjob_local.apiserver.logstream import LogSource, LogStream, log_request
from trainjob_local.apiserver.refusals import Refusal, bad_request, not_found, too_large_version
from trainjob_local.apiserver.registry import Registry
from trainjob_local.apiserver.requests import Asked, delete_options, list_options, oldest_version, write_options
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.store import encoded
from trainjob_local.apiserver.tokens import User
from trainjob_local.apiserver.watching import WatchHub
from trainjob_local.apiserver.writing import UNKNOWN_FORMAT, PatchKind
from trainjob_local.objects import utc_now

__all__ = ["Call", "Handlers"]

Json = dict[str, Any]

_ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True)
class Call:
    """One request that has passed authentication and authorization.

    Attributes:
        request: request of Starlette.
        asked: verb and target of the request.
        view: the resource in the API group that the client uses.
        user: user that sent the request.
    """

    request: Request
    asked: Asked
    view: Resource
    user: User


class Handlers:
    """Handlers of requests for resources.

    Args:
        registry: registry of the objects.
        hub: hub of the open watches.
        logs: function that returns logs of pods; None if there is no kubelet.
    """

    def __init__(self, registry: Registry, hub: WatchHub, logs: LogSource | None) -> None:
        self._registry, self._hub, self._logs = registry, hub, logs
        self._authorizer = Authorizer(registry)

    async def answer(self, call: Call) -> Response:
        """Handle a request and return the response.

        Raises:
            Refusal: any error that the client has to get as a Status.
        """
        asked, view = call.asked, call.view
        if asked.subresource and asked.subresource not in view.subresources:
            raise not_found(view, asked.name) if view.custom else _unknown()
        special = self._special(asked.subresource, asked.verb)
        if special:
            return await special(call)
        if view.namespaced and not asked.namespace and asked.verb not in _READS:
            if view.custom:
                return PlainTextResponse("404 page not found\n", 404)
            raise _not_allowed()
        handler = self._plain(asked, view)
        return await handler(call)

    def _special(self, subresource: str, verb: str) -> Callable[[Call], Awaitable[Response]] | None:
        found = {("log", "get"): self._log, ("binding", "create"): self._bind, ("token", "create"): self._token}
        return found.get((subresource, verb))

    def _plain(self, asked: Asked, view: Resource) -> Callable[[Call], Awaitable[Response]]:
        if asked.subresource not in ("", "status"):
            raise _not_allowed()
        handlers = {"get": self._get, "update": self._update, "patch": self._patch}
        if not asked.subresource:
            handlers |= {
                "list": self._list,
                "watch": self._watch,
                "create": self._create,
                "delete": self._delete,
                "deletecollection": self._delete_all,
            }
        if asked.subresource and view.custom and asked.verb not in handlers:
            text = f'{asked.verb} is not supported on resources of kind "{view.qualified}"'
            raise Refusal(405, "MethodNotAllowed", text, details={"group": view.group, "kind": view.plural})
        if asked.verb not in handlers or (asked.verb == "create" and asked.name):
            raise _not_allowed()
        if asked.verb in ("update", "patch") and not asked.name:
            raise bad_request("name must be provided") if view.custom else _not_allowed()
        if (asked.verb, view.plural) == ("deletecollection", "namespaces"):
            raise _not_allowed()
        return handlers[asked.verb]

    # -- reading --------------------------------------------------------------------------------------------------

    async def _get(self, call: Call) -> Response:
        asked = oldest_version(call.request.query_params)
        with self._registry.lock:
            stored = self._registry.read(call.view, call.asked.name, call.asked.namespace)
            if asked > self._registry.store.version:
                raise too_large_version(asked, self._registry.store.version)
        return json_answer(view_text(call.view, stored))

    async def _list(self, call: Call) -> Response:
        options = list_options(call.request.query_params, watch=False)
        return json_answer(list_text(self._registry, call.view, call.asked.namespace, options))

    async def _watch(self, call: Call) -> Response:
        options = list_options(call.request.query_params, watch=True)
        lines = self._hub.open(call.view, call.asked.namespace, options)
        return StreamAnswer(lines, "application/json")

    async def _log(self, call: Call) -> Response:
        stored = self._registry.read(call.view, call.asked.name, call.asked.namespace)
        wanted = log_request(stored, call.request.query_params, utc_now())
        if not stored.body["spec"].get("nodeName"):
            return Response(status_code=204)
        if self._logs is None:
            raise Refusal(500, "InternalError", "Internal error occurred: there is no kubelet to ask for logs")
        stream = LogStream(self._logs, wanted, asyncio.get_running_loop())
        return StreamAnswer(await stream.start(), "text/plain")

    # -- writing --------------------------------------------------------------------------------------------------

    async def _create(self, call: Call) -> Response:
        body = await read_json(call.request, call.view.kind)
        options = _options(call.request, "CreateOptions")
        created = self._registry.create(
            call.view.plural, _inward(call.view, body), call.asked.namespace, options=options
        )
        return _written(call.view, created, 201, options.warnings)

    async def _update(self, call: Call) -> Response:
        body, asked = await read_json(call.request, call.view.kind), call.asked
        if isinstance(body, dict):
            _check_name(_name_in(body), asked.name)
        options = _options(call.request, "UpdateOptions")
        inward = _inward(call.view, body)
        updated = self._registry.update(
            call.view.plural, inward, asked.namespace, subresource=asked.subresource, options=options
        )
        return _written(call.view, updated, 200, options.warnings)

    async def _patch(self, call: Call) -> Response:
        asked, view = call.asked, call.view
        kind = _patch_kind(call.request.headers.get("content-type", ""), view)
        body = await read_patch(call.request)
        options = _options(call.request, "PatchOptions")
        inward = _inward(view, body) if isinstance(body, dict) else body
        patched = self._registry.patch(
            view.plural, asked.name, inward, asked.namespace, subresource=asked.subresource, kind=kind, options=options
        )
        return _written(view, patched, 200, options.warnings)

    # -- deleting -------------------------------------------------------------------------------------------------

    async def _delete(self, call: Call) -> Response:
        body = await read_delete_options(call.request)
        options = delete_options(call.request.query_params, body)
        view, asked = call.view, call.asked
        deleted, gone = self._registry.delete_with(view, asked.name, asked.namespace, options)
        warnings = [_ORPHANS] if view.orphans and not options.propagation else []
        if gone and not view.returns_deleted:
            return json_answer(success(view, asked.name, deleted["metadata"]["uid"]), warnings=warnings)
        return _written(view, deleted, 200, warnings)

    async def _delete_all(self, call: Call) -> Response:
        body = await read_delete_options(call.request)
        query, view = call.request.query_params, call.view
        chosen, options = list_options(query, watch=False), delete_options(query, body)
        namespace = call.asked.namespace
        with self._registry.lock:
            selected = self._registry.select(view, namespace, chosen.labels, chosen.fields)
            self._registry.delete_all(
                view.plural, namespace, labels=chosen.labels, fields=chosen.fields, options=options
            )
            head = {"kind": f"{view.kind}List", "apiVersion": view.api_version}
            metadata = {"resourceVersion": str(self._registry.store.version)}
        items = b",".join(texts_of(view, selected))
        return json_answer(encoded({**head, "metadata": metadata})[:-1] + b',"items":[' + items + b"]}")

    # -- the rest -------------------------------------------------------------------------------------------------

    async def _bind(self, call: Call) -> Response:
        body, name = await read_call(call.request, "Binding"), call.asked.name
        if (body.get("metadata") or {}).get("name") != name:
            raise bad_request("name in URL does not match name in Binding object")
        node = (body.get("target") or {}).get("name")
        if not node:
            raise Refusal(500, "", "target.name: Required value")
        self._registry.bind(name, node, call.asked.namespace)
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
        return json_answer(status, 201)

    async def _token(self, call: Call) -> Response:
        body = await read_call(call.request, "TokenRequest")
        made = self._registry.tokens.create(call.asked.namespace, call.asked.name, body.get("spec"))
        return json_answer(made, 201)

    async def review(self, request: Request, user: User) -> Response:
        """Handle a SelfSubjectAccessReview and return the response.

        Raises:
            Refusal: 400, 413 or 415 if the body is not valid; 422 if it does not have exactly one of
                `resourceAttributes` and `nonResourceAttributes`.
        """
        body = await read_call(request, "SelfSubjectAccessReview")
        spec = body.get("spec") or {}
        asked, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (asked is None) == (path is None):
            text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            raise Refusal(
                422,
                "Invalid",
                f'SelfSubjectAccessReview.authorization.k8s.io "" is invalid: spec: Invalid value: {text}',
            )
        allowed = self._authorizer.allows(user, _reviewed(spec))
        answer = {"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {}}
        return json_answer({**answer, "spec": spec, "status": {"allowed": allowed}}, 201)


_READS = ("get", "list", "watch")


def _reviewed(spec: Json) -> Action:
    path, asked = spec.get("nonResourceAttributes"), spec.get("resourceAttributes", {})
    if path is not None:
        return Action(path.get("verb", ""), path=path.get("path", ""))
    resource, subresource = asked.get("resource") or "*", asked.get("subresource")
    target = f"{resource}/{subresource}" if subresource else resource
    scope = asked.get("namespace", ""), asked.get("name", "")
    return Action(asked.get("verb", ""), asked.get("group", ""), target, *scope)


def _check_name(given: str, asked: str) -> None:
    if not given:
        raise bad_request(f"the name of the object ({asked} based on URL) was undeterminable: name must be provided")
    if given != asked:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({asked})")


def _unknown() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource", details={})


def _not_allowed() -> Refusal:
    return Refusal(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def _patch_kind(content_type: str, view: Resource) -> PatchKind:
    media_type = content_type.partition(";")[0].strip()
    try:
        return PatchKind(media_type)
    except ValueError as error:
        if media_type == "application/json" and not view.custom:
            raise Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={}) from error
        raise Refusal(415, "UnsupportedMediaType", UNKNOWN_FORMAT) from error


def _name_in(body: Any) -> str:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _inward(view: Resource, body: Any) -> Any:
    """Convert the body of a request to the shape in which the object is stored."""
    return from_shape(body) if view.served_from and isinstance(body, dict) else body


def _options(request: Request, kind: str) -> WriteOptions:
    """Parse the options of a write.

    The options' list of warnings is also kept in the request, so that an error response has the warnings, too.
    """
    options = write_options(request.query_params, kind)
    request.state.warnings = options.warnings
    return options


def _written(view: Resource, body: Json, code: int, warnings: list[str]) -> Response:
    return json_answer(to_shape(body) if view.served_from else body, code, warnings=warnings)
