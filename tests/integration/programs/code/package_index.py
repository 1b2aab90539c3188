"""A package index on loopback with tiny wheels."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler

from tests.support.loopback_server import LoopbackServer


def build_wheel(name: str, version: str, requires: Sequence[str] = ()) -> tuple[str, bytes]:
    """Return name and contents of a wheel with a module of its name and a program."""
    stem = f"{name.replace('-', '_')}-{version}"
    module = name.replace("-", "_")
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{module}.py": f"VERSION = {version!r}\n\ndef main():\n    print(VERSION)\n",
        f"{stem}.dist-info/METADATA": metadata + "".join(f"Requires-Dist: {each}\n" for each in requires),
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{stem}.dist-info/RECORD"])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as wheel:
        for path, text in {**files, f"{stem}.dist-info/RECORD": record}.items():
            wheel.writestr(zipfile.ZipInfo(path), text)
    return f"{stem}-py3-none-any.whl", buffer.getvalue()


class PackageIndex:
    """The index as a context manager.

    Attributes:
        requests: paths that were requested.
        file_requested: event of the first request of a wheel.
        may_send_files: event that wheels wait for.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.file_requested = threading.Event()
        self.may_send_files = threading.Event()
        self.may_send_files.set()
        self._files: dict[str, bytes] = {}

    def add(self, name: str, version: str, *requires: str) -> None:
        path, content = build_wheel(name, version, requires)
        self._files[path] = content

    def __enter__(self) -> PackageIndex:
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, content = index._respond(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "text/html" if content.startswith(b"<") else "application/zip")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = LoopbackServer(Handler)
        return self

    def __exit__(self, *_: object) -> None:
        self.may_send_files.set()
        self._server.stop()

    @property
    def url(self) -> str:
        return f"{self._server.url}/simple"

    def _respond(self, path: str) -> tuple[int, bytes]:
        self.requests.append(path)
        kind, _, name = path.strip("/").partition("/")
        if name.endswith(".metadata"):  # PEP 658, so that uv requests the wheels when it installs them
            with zipfile.ZipFile(io.BytesIO(self._files[name[: -len(".metadata")]])) as wheel:
                return 200, next(wheel.read(each) for each in wheel.namelist() if each.endswith("/METADATA"))
        if kind == "files":
            self.file_requested.set()
            self.may_send_files.wait()
            return 200, self._files[name]
        stem = name.replace("-", "_") + "-"
        links = [
            f'<a href="/files/{file}#sha256={hashlib.sha256(content).hexdigest()}" data-core-metadata="true">{file}</a>'
            for file, content in self._files.items()
            if file.startswith(stem)
        ]
        return (200, f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()) if links else (404, b"<>")
