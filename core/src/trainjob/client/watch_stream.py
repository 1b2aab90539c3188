"""Reading the stream of a watch: its lines, and what each of them says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.client.api_errors import from_network, from_status, not_understood
from trainjob.client.response_checks import check_object
from trainjob.errors import ClusterError

_KINDS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
_LONGEST_LINE = 16 * 1024 * 1024  # an object has at most a few MB (etcd refuses requests over 1.5 MB)
_PIECE = 64 * 1024


@dataclass(frozen=True)
class WatchEvent:
    """One event.

    Attributes:
        found: the object as it is now, or as it was last; None in a bookmark.
        version: where to go on from.
        gone: the object does not exist any more.
    """

    found: Mapping[str, Any] | None
    version: str
    gone: bool


def event_lines(stream: Any, *, server: str, doing: str) -> Iterator[bytes]:
    """The complete lines of a watch, each as soon as it is there; what is cut off at the end is left out.

    Args:
        stream: an open urllib3 response.
        server: the API server's URL, for messages.
        doing: what this is for, for messages.

    Raises:
        ClusterUnreachable: the stream broke.
        ClusterError: a line without an end.
    """
    import urllib3

    rest = bytearray()
    try:
        while piece := stream.read1(_PIECE, decode_content=False):
            *ended, begun = piece.split(b"\n")
            for part in ended:
                rest += part
                if rest:
                    yield bytes(rest)
                rest.clear()
            rest += begun
            if len(rest) > _LONGEST_LINE:
                raise not_understood(bytes(rest), doing=doing)
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:  # ValueError: TLS that was shut down
        raise from_network(error, server=server, doing=doing) from error


def read_event(line: bytes, *, server: str, doing: str) -> WatchEvent:
    """What a line says.

    Raises:
        Expired: the server does not know any more what happened since the version.
        ClusterError: the server's own error, or no event at all.
    """
    try:
        event = json.loads(line)
        kind, found = event["type"], event["object"]
        if kind == "ERROR":
            raise _error(found, server=server, doing=doing)
        version = found["metadata"]["resourceVersion"]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise not_understood(line, doing=doing) from error
    known = kind == "BOOKMARK" or (kind in _KINDS and not check_object(found))
    if not known or not isinstance(version, str) or not version:
        raise not_understood(line, doing=doing)
    return WatchEvent(None if kind == "BOOKMARK" else found, version, gone=kind == "DELETED")


def _error(status: Any, *, server: str, doing: str) -> ClusterError:
    code = status.get("code") if isinstance(status, dict) else None
    return from_status(code if isinstance(code, int) else 500, json.dumps(status), {}, server=server, doing=doing)
