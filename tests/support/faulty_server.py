"""Faults in single responses of the HTTP servers of tests."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of no time


@dataclass(frozen=True)
class Fault:
    """A fault of one response.

    Attributes:
        status: HTTP status of a response without the file; 0 for the file.
        retry_after: value of its header; empty for none.
        sent: bytes after which the connection ends, headers included.
        is_reset: whether the connection is reset, not closed.
    """

    status: int = 0
    retry_after: str = ""
    sent: int = 0
    is_reset: bool = False


def with_faults(handler: type[Any], name: str, faults: list[Fault]) -> type[Any]:
    """Return a handler whose first responses to GETs of a file have faults.

    Args:
        handler: subclass of BaseHTTPRequestHandler.
        name: the end of the file's path.
        faults: the faults; each is removed when it happens.
    """

    def get(self: Any) -> None:
        is_file = self.path.partition("?")[0].endswith(name)
        fault = faults.pop(0) if is_file and faults else None
        if fault and fault.status:
            _refuse(self, fault)
            return
        if fault:
            self.wfile = _BreakingWriter(self.wfile, self.connection, fault)
        handler.do_GET(self)

    return type("FaultyHandler", (handler,), {"do_GET": get})


def with_upload_faults(handler: type[Any], path: re.Pattern[str], faults: list[Fault]) -> type[Any]:
    """Return a handler whose first responses to PUTs and POSTs have faults.

    Args:
        handler: subclass of BaseHTTPRequestHandler.
        path: pattern that is found in method and address of the requests, such as `PUT /folder/file`.
        faults: the faults; each is removed when it happens. If one has neither a status nor bytes, the request is
            carried out, and the response is lost.
    """

    def wrap(name: str) -> Callable[[Any], None]:
        handle = getattr(handler, name)

        def handle_with_faults(self: Any) -> None:
            fault = faults.pop(0) if faults and path.search(f"{self.command} {self.path}") else None
            if fault is None:
                handle(self)
                return
            if not (fault.status or fault.sent):
                with contextlib.suppress(ConnectionError):
                    self.wfile = _BreakingWriter(self.wfile, self.connection, fault)
                    handle(self)
                self.close_connection = True
                return
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length if fault.status else min(length, fault.sent))
            if fault.status:
                _refuse(self, fault)
                return
            if fault.is_reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            raise ConnectionError

        return handle_with_faults

    names = [name for name in ("do_PUT", "do_POST") if hasattr(handler, name)]
    return type("FaultyHandler", (handler,), {name: wrap(name) for name in names})


def _refuse(handler: Any, fault: Fault) -> None:
    handler.send_response(fault.status)
    handler.send_header("Content-Length", "0")
    if fault.retry_after:
        handler.send_header("Retry-After", fault.retry_after)
    handler.end_headers()


class _BreakingWriter:
    """A response's stream that ends after some bytes."""

    def __init__(self, stream: Any, connection: socket.socket, fault: Fault) -> None:
        self._stream, self._connection, self._fault, self._left = stream, connection, fault, fault.sent

    def write(self, data: bytes) -> None:
        self._stream.write(data[: self._left])
        self._left -= len(data)
        if self._left <= 0:
            if self._fault.is_reset:
                self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            raise ConnectionError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
