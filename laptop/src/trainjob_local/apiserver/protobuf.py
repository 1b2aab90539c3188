"""Decoder of Kubernetes objects in protobuf, which typed Go clients send by default (client-go 0.32 and later).

Responses are JSON, because these clients accept both.
Source: k8s.io/apimachinery 0.36 `pkg/runtime/serializer/protobuf/protobuf.go`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, cast

from trainjob_local.apiserver.kubernetes_types import find_message_key, load_messages

__all__ = ["MEDIA_TYPE", "ProtobufError", "decode_object"]

Json = dict[str, Any]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
"""Media type of the encoded objects."""

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types


class ProtobufError(ValueError):
    """A body that is not a Kubernetes object in protobuf, or of an unknown kind."""


def decode_object(body: bytes) -> Json:
    """Return the object that JSON would have.

    Raises:
        ProtobufError: the body is damaged, or its kind is unknown.
    """
    if not body.startswith(_MAGIC):
        raise ProtobufError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_iterate_fields(body[len(_MAGIC) :]))
        type_meta = dict(_iterate_fields(cast("bytes", envelope[1])))
        version, kind = (cast("bytes", type_meta.get(number, b"")).decode() for number in (1, 2))
        decoded = _decode_message(_message_key(version, kind), cast("bytes", envelope.get(2, b"")))
    except ProtobufError:
        raise
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ProtobufError(f"the body is not a valid protobuf message: {error!r}") from error
    return {"kind": kind, "apiVersion": version, **decoded}


def _message_key(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    key = find_message_key(group, version, kind)
    if not key:
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    return key


def _iterate_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the raw value of each field of a message."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        size = {_FIXED64: 8, _FIXED32: 4}.get(wire)
        if size is None:
            if wire != _BYTES:
                raise IndexError(f"wire type {wire}")
            size, position = _read_varint(data, position)
        if position + size > len(data):
            raise IndexError("unexpected end")
        yield number, data[position : position + size]
        position += size


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _decode_message(key: str, data: bytes) -> Json:
    fields, found = load_messages()[key], cast("Json", {})
    for number, raw in _iterate_fields(data):
        if (field := fields.get(number)) is None:
            continue  # of a newer version
        name, kind = field.name, field.type
        if kind.startswith("[]"):
            found.setdefault(name, []).append(_decode_value(kind[2:], raw))
        elif kind.startswith("{}"):
            entry = dict(_iterate_fields(cast("bytes", raw)))
            key_text = cast("bytes", entry.get(1, b"")).decode()
            found.setdefault(name, {})[key_text] = _decode_value(kind[2:], entry.get(2, b""))
        else:
            value = _decode_value(kind, raw)
            if not name:  # JSON has these fields in the message itself
                found |= value
            elif field.presence or value not in ("", 0, False, None, {}):  # Go encodes zeros that JSON omits
                found[name] = value
    return found


def _decode_value(kind: str, raw: int | bytes) -> Any:
    if isinstance(raw, int):
        return bool(raw) if kind == "bool" else raw - 2**64 if raw >= 2**63 else raw
    if kind == "string":
        return raw.decode()
    if kind == "bytes":
        return base64.b64encode(raw).decode()
    if special := _SPECIAL.get(kind):
        return special(dict(_iterate_fields(raw)))
    return _decode_message(kind, raw)


def _decode_time(fields: Mapping[int, Any]) -> str | None:
    if not fields:
        return None
    seconds, nanoseconds = fields.get(1, 0), fields.get(2, 0)
    moment = datetime.fromtimestamp(seconds - 2**64 if seconds >= 2**63 else seconds, timezone.utc)
    fraction = f".{nanoseconds // 1000:06}" if nanoseconds else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _decode_int_or_string(fields: Mapping[int, Any]) -> int | str:
    if fields.get(1):
        return cast("bytes", fields.get(3, b"")).decode()
    return int(fields.get(2, 0))


_SPECIAL: Mapping[str, Callable[[Mapping[int, Any]], Any]] = {
    "time": _decode_time,
    "quantity": lambda fields: fields.get(1, b"").decode(),
    "int-or-string": _decode_int_or_string,
    "json": lambda fields: json.loads(fields.get(1) or b"null"),
}
