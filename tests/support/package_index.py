"""A package index on loopback with wheels that a test builds; see PEP 503 for its pages."""

from __future__ import annotations

import base64
import hashlib
import io
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote, unquote

from tests.support.loopback_server import LoopbackServer


@dataclass(frozen=True)
class Wheel:
    """A wheel with a module of its name, whose `VERSION` is printed by a program of its name."""

    name: str
    version: str
    requires: tuple[str, ...] = ()

    @property
    def filename(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content()).hexdigest()

    @property
    def metadata(self) -> str:
        head = f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\n"
        return head + "".join(f"Requires-Dist: {one}\n" for one in self.requires)

    @property
    def requirement(self) -> str:
        """The line of a lock."""
        return f"{self.name}=={self.version} \\\n    --hash=sha256:{self.digest}\n    # via a test\n"

    def content(self) -> bytes:
        module = self.name.replace("-", "_")
        info = f"{module}-{self.version}.dist-info"
        files = {
            f"{module}.py": f"VERSION = {self.version!r}\n\ndef main():\n    print(VERSION)\n",
            f"{info}/METADATA": self.metadata,
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/entry_points.txt": f"[console_scripts]\n{self.name} = {module}:main\n",
        }
        record = "".join(f"{name},sha256={_record_hash(text)},{len(text)}\n" for name, text in files.items())
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            for name, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
                archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), text)
        return written.getvalue()


@dataclass
class PackageIndex:
    """An index as a context manager.

    Attributes:
        wheels: the wheels that it serves; a test may add some.
        credentials: `user:password` that each request needs; empty for none.
        gate: while it is clear, downloads of wheels wait.
        download_started: set when a download of a wheel has begun.
        requests: path of each request.
    """

    wheels: list[Wheel] = field(default_factory=list)
    credentials: str = ""
    gate: threading.Event = field(default_factory=threading.Event)
    download_started: threading.Event = field(default_factory=threading.Event)
    requests: list[str] = field(default_factory=list)

    def __enter__(self) -> PackageIndex:
        index = self
        self.gate.set()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index._respond(self)

            def do_HEAD(self) -> None:
                index._respond(self)

            def log_message(self, *_: Any) -> None:
                """Print nothing; `requests` has every request."""

        self._server = LoopbackServer(Handler)
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.set()
        self._server.stop()

    @property
    def url(self) -> str:
        return f"{self._server.url}/simple"

    @property
    def url_with_credentials(self) -> str:
        return self.url.replace("://", f"://{self.credentials}@")

    def downloads(self, name: str) -> int:
        """Return how many times a wheel of this distribution was requested."""
        return sum(name in path for path in self.requests if path.startswith("/files/") and path.endswith(".whl"))

    def _respond(self, request: BaseHTTPRequestHandler) -> None:
        path = unquote(request.path)
        self.requests.append(path)
        expected = base64.b64encode(self.credentials.encode()).decode()
        if self.credentials and request.headers.get("Authorization") != f"Basic {expected}":
            request.send_response(401)
            request.send_header("WWW-Authenticate", "Basic realm=index")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        kind, _, name = path.strip("/").partition("/")
        if name.endswith(".metadata"):  # PEP 658, so that uv requests only the wheels that it installs
            bodies = [one.metadata.encode() for one in self.wheels if f"{one.filename}.metadata" == name]
        elif kind == "files":
            self.download_started.set()
            self.gate.wait()
            bodies = [one.content() for one in self.wheels if one.filename == name]
        else:
            links = [
                f'<a href="/files/{quote(one.filename)}#sha256={one.digest}" data-core-metadata="true">'
                f"{one.filename}</a>"
                for one in self.wheels
                if one.name == name
            ]
            bodies = [f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()] if links else []
        request.send_response(200 if bodies else 404)
        body = bodies[0] if bodies else b""
        request.send_header("Content-Type", "application/octet-stream" if kind == "files" else "text/html")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "GET":
            request.wfile.write(body)


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
