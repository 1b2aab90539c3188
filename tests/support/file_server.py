"""A web server of single files on loopback."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from typing_extensions import Self

from tests.support.loopback_server import LoopbackServer

_PIECE = 1 << 20


@dataclass
class ServedFile:
    """A file, and the headers of its responses."""

    data: bytes
    headers: dict[str, str]


@dataclass
class FileServer:
    """The server as a context manager.

    Attributes:
        files: the files, by path with query.
        redirects: the address that replaces a path.
        token: Bearer token that each request needs; empty for none.
        has_ranges: whether the server sends parts of files.
        sends_length: whether the responses have a length.
        busy: number of requests that the server refuses with 503, before it responds.
        hook: called with the path and the position in the file, before each piece of a body.
        requests: path, requested range and token of each request.
    """

    files: dict[str, ServedFile] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    token: str = ""
    has_ranges: bool = True
    sends_length: bool = True
    busy: int = 0
    hook: Callable[[str, int], None] = lambda path, sent: None
    requests: list[tuple[str, str, str]] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.http_server = LoopbackServer(type("Handler", (_Handler,), {"served": self}))
        return self

    def __exit__(self, *_: object) -> None:
        self.http_server.stop()

    @property
    def url(self) -> str:
        return self.http_server.url


class _Handler(BaseHTTPRequestHandler):
    served: FileServer

    def do_GET(self) -> None:
        served, authorization = self.served, self.headers.get("Authorization", "")
        served.requests.append((self.path, self.headers.get("Range", ""), authorization.removeprefix("Bearer ")))
        found = served.files.get(self.path)
        if served.busy:
            served.busy -= 1
            self._send(503, {}, b"")
        elif target := served.redirects.get(self.path):
            self._send(302, {"Location": target}, b"")
        elif served.token and authorization != f"Bearer {served.token}":
            self._send(401, {}, b"")
        elif found is None:
            self._send(404, {}, b"")
        else:
            self._send_file(found)

    def _send_file(self, found: ServedFile) -> None:
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")) if self.served.has_ranges else None
        first, size = int(part[1]) if part else 0, len(found.data)
        if part and first >= size:
            self._send(416, {"Content-Range": f"bytes */{size}"}, b"")
        elif part:
            end = min(int(part[2]) + 1, size)
            headers = {"Content-Range": f"bytes {first}-{end - 1}/{size}", **found.headers}
            self._send(206, headers, found.data[first:end], first)
        else:
            self._send(200, found.headers, found.data)

    def _send(self, status: int, headers: dict[str, str], body: bytes, first: int = 0) -> None:
        length = {"Content-Length": str(len(body))} if self.served.sends_length else {}
        self.send_response(status)
        for name, value in {**length, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        for start in range(0, len(body), _PIECE):
            self.served.hook(self.path, first + start)
            self.wfile.write(body[start : start + _PIECE])

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass
