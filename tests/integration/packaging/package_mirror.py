"""A private package index on loopback: it accepts uploads, and redirects other names to the public index."""

from __future__ import annotations

import hashlib
import os
import re
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from tests.support.loopback_server import LoopbackServer

PUBLIC_INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/")


class PackageMirror:
    """The index as a context manager; its pages are those of PEP 503.

    Attributes:
        folder: folder with the wheels that were uploaded.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> PackageMirror:
        mirror = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                mirror._respond(self)

            def do_POST(self) -> None:
                mirror._store(self)

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        self._server = LoopbackServer(Handler)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    @property
    def url(self) -> str:
        return self._server.url

    def _respond(self, request: BaseHTTPRequestHandler) -> None:
        kind, _, name = unquote(request.path).strip("/").partition("/")
        if kind == "files":
            self._send(request, (self.folder / Path(name).name).read_bytes(), "application/octet-stream")
            return
        pattern = f"{re.sub(r'[-_.]+', '_', name)}-*.whl"
        links = [
            f'<a href="/files/{path.name}#sha256={_digest(path)}">{path.name}</a>' for path in self.folder.glob(pattern)
        ]
        if links:
            self._send(request, f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode(), "text/html")
        else:
            self._send(request, b"", "text/html", 302, Location=f"{PUBLIC_INDEX}/{name}/")

    def _store(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"]))
        headers = f"Content-Type: {request.headers['Content-Type']}\r\n\r\n".encode()
        for part in message_from_bytes(headers + body, policy=policy.HTTP).walk():
            if name := part.get_filename():
                (self.folder / Path(name).name).write_bytes(cast("bytes", part.get_payload(decode=True)))
        self._send(request, b"", "text/plain")

    def _send(
        self, request: BaseHTTPRequestHandler, body: bytes, content_type: str, status: int = 200, **headers: str
    ) -> None:
        request.send_response(status)
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
