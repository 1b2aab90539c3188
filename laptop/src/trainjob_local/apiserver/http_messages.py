"""Request bodies and responses: JSON, Status objects, and streams."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trainjob_local.apiserver.builtin_kinds import REQUEST_BODY_SCHEMAS
from trainjob_local.apiserver.protobuf import MEDIA_TYPE, ProtobufError, decode_object
from trainjob_local.apiserver.resources import Resource
from trainjob_local.apiserver.schema import find_wrong_type
from trainjob_local.apiserver.status_errors import StatusError, bad_request
from trainjob_local.apiserver.store import encode_json
from trainjob_local.apiserver.watches import StreamDropped
from trainjob_local.apiserver.write_rules import without_nulls
from trainjob_local.apiserver.yaml_bodies import parse_yaml_body

__all__ = [
    "StreamResponse",
    "deletion_status",
    "error_response",
    "json_response",
    "read_delete_options",
    "read_json",
    "read_patch",
    "read_validated_json",
]

_HEADERS = {"Cache-Control": "no-cache, private"}
_MAX_BYTES = 3 * 1024 * 1024
_DELETE_OPTIONS = "DeleteOptions"
_UNSUPPORTED_MEDIA_TYPE = (
    "the body of the request was in an unknown format - accepted media types include: application/json, "
    "application/yaml, application/vnd.kubernetes.protobuf"
)


def json_response(value: Any, code: int = 200, *, warnings: Sequence[str] = ()) -> Response:
    """Return a response with a JSON body.

    Each warning becomes a `Warning: 299` header. A warning with control characters is dropped, as in
    k8s.io/apimachinery 0.36 `pkg/util/net/http.go`, NewWarningHeader.

    Args:
        value: value of the body; bytes are sent as they are.
        code: HTTP status.
        warnings: warnings for the client.
    """
    content = value if isinstance(value, bytes) else encode_json(value)
    response = Response(content, code, _HEADERS, "application/json")
    for warning in filter(str.isprintable, warnings):
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.raw_headers.append((b"warning", f'299 - "{quoted}"'.encode("latin-1", "replace")))
    return response


def error_response(error: StatusError, *, warnings: Sequence[str] = ()) -> Response:
    """Return a response with the Status object and the HTTP status of an error."""
    response = json_response(error.to_status(), error.code, warnings=warnings)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def deletion_status(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """Return the Status for a deleted object."""
    details: dict[str, Any] = {"name": name, **({"group": resource.group} if resource.group else {})}
    details |= {"kind": resource.plural, "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


async def read_json(request: Request, kind: str) -> Any:
    """Read an object from the body, which is JSON, YAML or protobuf.

    Args:
        request: the request.
        kind: kind of the object, for the error message.

    Returns:
        The object, or None if the body is `null`.

    Raises:
        StatusError: 413 if the body is larger than 3 MiB; 415 if its media type is not supported; 400 if it is not an
            object.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if media_type == MEDIA_TYPE:
        return _parse_protobuf(await _read_body(request))
    if media_type not in ("", "application/json", "application/yaml"):
        raise StatusError(415, "UnsupportedMediaType", _UNSUPPORTED_MEDIA_TYPE)
    parse = _parse_yaml if media_type == "application/yaml" else _parse_json
    value = parse(await _read_body(request))
    if value is not None and not isinstance(value, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind})")
    return value


async def read_patch(request: Request) -> Any:
    """Read a patch from the body, which is JSON, or YAML for server-side apply.

    Raises:
        StatusError: 413 if the body is larger than 3 MiB; 400 if it is not valid.
    """
    is_yaml = request.headers.get("content-type", "").partition(";")[0].strip().endswith("yaml")
    return (_parse_yaml if is_yaml else _parse_json)(await _read_body(request))


async def read_delete_options(request: Request) -> dict[str, Any]:
    """Return the DeleteOptions in the body of a DELETE; an empty dict if there is no body.

    Raises:
        StatusError: 413 if the body is larger than 3 MiB; 400 if it is not JSON, of another kind, or has a value of a
            wrong type.
    """
    text = await _read_body(request)
    parse = _parse_protobuf if request.headers.get("content-type", "").startswith(MEDIA_TYPE) else _parse_json
    body = without_nulls(parse(text)) if text else {}
    if body is not None and not isinstance(body, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {_DELETE_OPTIONS})")
    body = body or {}
    kind, version = body.get("kind", _DELETE_OPTIONS), body.get("apiVersion", "v1")
    if kind != _DELETE_OPTIONS:
        raise bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    if problem := find_wrong_type(REQUEST_BODY_SCHEMAS[_DELETE_OPTIONS], body):
        raise bad_request(problem)
    return cast("dict[str, Any]", body)


async def read_validated_json(request: Request, kind: str) -> dict[str, Any]:
    """Return the body of a request that stores no object; an empty dict if it is `null`.

    Args:
        request: the request.
        kind: kind of the body, a key of `REQUEST_BODY_SCHEMAS`.

    Raises:
        StatusError: 413 if the body is larger than 3 MiB; 415 if its media type is not JSON; 400 if it is not JSON
            object, or has a value of a wrong type.
    """
    body = without_nulls(await read_json(request, kind))
    if body is None:
        return {}
    problem = find_wrong_type(REQUEST_BODY_SCHEMAS[kind], body)
    if problem:
        raise bad_request(f'{kind} in version "v1" cannot be handled as a {kind}: {problem}')
    return cast("dict[str, Any]", body)


def _parse_json(body: bytes) -> Any:
    """Parse JSON.

    Raises:
        StatusError: 400 if it is not valid.
    """
    try:
        return json.loads(body, parse_constant=_reject_constant)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error


def _parse_yaml(body: bytes) -> Any:
    """Parse YAML.

    Raises:
        StatusError: 400 if it is not valid.
    """
    try:
        return parse_yaml_body(body)
    except ValueError as error:
        raise bad_request(f"error decoding YAML: {error}") from error


def _parse_protobuf(body: bytes) -> Any:
    """Parse an object in protobuf.

    Raises:
        StatusError: 400 if it is not valid.
    """
    try:
        return decode_object(body)
    except ProtobufError as error:
        raise bad_request(str(error)) from error


def _reject_constant(name: str) -> Any:
    """Raise a ValueError for `NaN` and `Infinity`, which only Python's parser accepts."""
    raise ValueError(name)


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BYTES:
            raise StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_MAX_BYTES}")
    return bytes(body)


class StreamResponse(Response):
    """A response whose body is a stream; it ends early if the client disconnects.

    Args:
        chunks: generator of the body; if it raises `StreamDropped`, the connection breaks off without a proper end.
        media_type: media type of the body.
    """

    def __init__(self, chunks: AsyncGenerator[bytes, None], media_type: str) -> None:
        super().__init__(b"", 200, _HEADERS, media_type)
        del self.headers["content-length"]
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Send the stream; return when it ends or the client has disconnected."""
        sending = asyncio.ensure_future(self._send(send))
        listening = asyncio.ensure_future(_wait_disconnected(receive))
        try:
            await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, listening):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, StreamDropped, OSError):
                    await task
            await self._chunks.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        # An empty chunk sends the headers, so that the client sees that the request is accepted.
        await send({"type": "http.response.body", "body": b"", "more_body": True})
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _wait_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
