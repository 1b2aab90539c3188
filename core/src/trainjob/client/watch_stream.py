"""Reader of a watch stream: it splits the stream into lines and parses each line."""

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
    """One event of a watch.

    Attributes:
        found: the object as it is now, or its last state if it was deleted; None in a bookmark.
        version: resourceVersion from which a watch resumes after this event.
        gone: whether the object was deleted.
    """

    found: Mapping[str, Any] | None
    version: str
    gone: bool


def event_lines(stream: Any, *, server: str, doing: str) -> Iterator[bytes]:
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
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:  # ValueError: TLS was shut down
        raise from_network(error, server=server, doing=doing) from error


def read_event(line: bytes, *, server: str, doing: str) -> WatchEvent:
    """Parse one line of a watch and return its event.

    Raises:
        Expired: the server no longer has the changes since the resourceVersion.
        ClusterError: the line is another error of the server, or not a watch event.
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
