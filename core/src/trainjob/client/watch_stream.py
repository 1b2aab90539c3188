"""Reader of a watch stream: it splits the stream into lines and parses each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.client.api_errors import error_from_network, error_from_status, not_kubernetes_response
from trainjob.client.response_checks import check_object
from trainjob.errors import ClusterError

_EVENT_TYPES = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
_MAX_LINE_BYTES = 16 * 1024 * 1024  # an object has at most a few MB (etcd refuses requests over 1.5 MB)
_CHUNK_BYTES = 64 * 1024


@dataclass(frozen=True)
class WatchEvent:
    """One event of a watch.

    Attributes:
        object: the object as it is now, or its last state if it was deleted; None in a bookmark.
        resource_version: resourceVersion from which a watch resumes after this event.
        deleted: whether the object was deleted.
    """

    object: Mapping[str, Any] | None
    resource_version: str
    deleted: bool


def read_lines(stream: Any, *, server: str, doing: str) -> Iterator[bytes]:
    """Yield the complete lines of a watch, each as soon as it has arrived.

    An incomplete line at the end of the stream is left out.

    Args:
        stream: an open urllib3 response.
        server: URL of the API server, for error messages.
        doing: purpose of the request, for error messages.

    Raises:
        ClusterUnreachable: the stream broke.
        ClusterError: a line is longer than 16 MiB.
    """
    import urllib3

    pending = bytearray()
    try:
        while chunk := stream.read1(_CHUNK_BYTES, decode_content=False):
            *ends, beginning = chunk.split(b"\n")
            for end in ends:
                pending += end
                if pending:
                    yield bytes(pending)
                pending.clear()
            pending += beginning
            if len(pending) > _MAX_LINE_BYTES:
                raise not_kubernetes_response(bytes(pending), doing=doing)
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:  # ValueError: TLS was shut down
        raise error_from_network(error, server=server, doing=doing) from error


def parse_event(line: bytes, *, server: str, doing: str) -> WatchEvent:
    """Parse one line of a watch and return its event.

    Raises:
        Expired: the server no longer has the changes since the resourceVersion.
        ClusterError: the line is another error of the server, or not a watch event.
    """
    try:
        event = json.loads(line)
        kind, obj = event["type"], event["object"]
        if kind == "ERROR":
            raise _watch_error(obj, server=server, doing=doing)
        version = obj["metadata"]["resourceVersion"]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise not_kubernetes_response(line, doing=doing) from error
    valid = kind == "BOOKMARK" or (kind in _EVENT_TYPES and not check_object(obj))
    if not valid or not isinstance(version, str) or not version:
        raise not_kubernetes_response(line, doing=doing)
    return WatchEvent(None if kind == "BOOKMARK" else obj, version, deleted=kind == "DELETED")


def _watch_error(status: Any, *, server: str, doing: str) -> ClusterError:
    code = status.get("code") if isinstance(status, dict) else None
    return error_from_status(code if isinstance(code, int) else 500, json.dumps(status), {}, server=server, doing=doing)
