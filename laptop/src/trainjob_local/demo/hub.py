"""A read-only Hugging Face Hub on the loopback interface, for demonstrations and tests.

    ROOT/models/<org>/<name>/…      ROOT/datasets/<org>/<name>/…

With `HF_ENDPOINT=<url>` huggingface_hub uses this server. There is one revision, `main`. Its commit hash is computed
from the contents of the files, so a repository may change while the server runs.
Source: the requests and error headers of huggingface_hub 1.27 and 2.4 (`hf_api.py`, `utils/_http.py`).
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import re
import signal
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

__all__ = ["HubHandler", "HubServer", "Repository"]

_REPOSITORY = re.compile(r"/api/(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/]+))?")
_TREE = re.compile(r"/api/(?P<kind>models|datasets)/(?P<name>[^/]+/[^/]+)/tree/(?P<revision>[^/]+)(?:/(?P<folder>.*))?")
_FILE = re.compile(r"/(?:(?P<kind>datasets)/)?(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_BLOCK = 1 << 20
_LARGE = (".safetensors", ".bin", ".parquet")


@dataclass(frozen=True)
class Repository:
    """One repository of models or data.

    Attributes:
        name: name of the repository, `<org>/<name>`.
        folder: folder of its files.
    """

    name: str
    folder: Path

    def files(self) -> list[str]:
        """Return the paths of the files, relative to the folder, sorted by name."""
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.folder).as_posix() for path in paths)

    def sha256(self, file: str) -> str:
        """Return the hexadecimal SHA-256 of a file's content."""
        path = self.folder / file
        status = path.stat()
        return _sha256(path, status.st_mtime_ns, status.st_size)

    def entry(self, file: str) -> dict[str, Any]:
        """Return the entry of a file for a list of files.

        As on the real hub, a large file has its SHA-256, and any other file its git object ID.
        """
        path = self.folder / file
        size, entry = path.stat().st_size, {"type": "file", "path": file}
        if file.endswith(_LARGE):
            large = {"oid": self.sha256(file), "size": size, "pointerSize": 134}
            return {**entry, "size": size, "oid": self.sha256(file)[:40], "lfs": large}
        return {**entry, "size": size, "oid": hashlib.sha1(b"blob %d\0%b" % (size, path.read_bytes())).hexdigest()}  # noqa: S324

    def commit(self) -> str:
        """Return the commit hash: 40 hexadecimal digits, computed from the files' contents."""
        return hashlib.sha1("".join(f"{file}\n{self.sha256(file)}\n" for file in self.files()).encode()).hexdigest()  # noqa: S324

    def path(self, file: str) -> Path | None:
        """Return the path of a file, or None if it does not exist or is outside the repository."""
        path = (self.folder / file).resolve()
        return path if path.is_file() and self.folder in path.parents else None


class HubHandler(BaseHTTPRequestHandler):
    """Handler of the requests of one connection.

    Attributes:
        root: resolved folder with `models` and `datasets`.
        tokens: tokens by repository; a repository that is not listed is public.
    """

    protocol_version = "HTTP/1.1"
    # Headers and body are two writes. With Nagle's algorithm the second waits for the acknowledgement of the first.
    disable_nagle_algorithm = True
    root: ClassVar[Path]
    tokens: ClassVar[Mapping[str, str]]

    def do_GET(self) -> None:
        """Send a repository's description, its list of files, or a file."""
        path = unquote(urlsplit(self.path).path)
        if match := _REPOSITORY.fullmatch(path):
            self._send_repository(match)
        elif match := _TREE.fullmatch(path):
            self._send_tree(match)
        elif match := _FILE.fullmatch(path):
            self._send_file(match)
        else:
            self.send_hub_error(HTTPStatus.NOT_FOUND, "EntryNotFound", "Entry not found")

    def do_HEAD(self) -> None:
        """Send the response to GET without its body."""
        self.do_GET()

    def find_repository(self, match: re.Match[str]) -> Repository | None:
        """Return the repository of a request, or None after an error response.

        Args:
            match: match of the request's path, with the groups `kind` and `name`.
        """
        folder = (self.root / (match["kind"] or "models") / match["name"]).resolve()
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        wanted = self.tokens.get(match["name"])
        if wanted is not None and token != wanted:
            self._send_access_error(token)
        elif not folder.is_dir() or self.root not in folder.parents:
            # The real hub does not reveal to a client without token which repositories exist.
            status = HTTPStatus.NOT_FOUND if token else HTTPStatus.UNAUTHORIZED
            self.send_hub_error(
                status, "RepoNotFound", "Repository not found" if token else "Invalid username or password."
            )
        else:
            return Repository(match["name"], folder)
        return None

    def _send_access_error(self, token: str) -> None:
        if not token:
            self.send_hub_error(
                HTTPStatus.UNAUTHORIZED, "GatedRepo", "Access to this repository is restricted; authenticate first."
            )
        elif token in self.tokens.values():
            self.send_hub_error(
                HTTPStatus.FORBIDDEN, "GatedRepo", "Access to this repository is restricted; request access."
            )
        else:
            self.send_hub_error(HTTPStatus.UNAUTHORIZED, "", "Invalid credentials in Authorization header")

    def _send_repository(self, match: re.Match[str]) -> None:
        if not (repository := self.find_repository(match)) or not self._check_revision(repository, match["revision"]):
            return
        files = [{"rfilename": file} for file in repository.files()]
        switches = {"private": match["name"] in self.tokens, "gated": False, "disabled": False}
        counts = {"tags": [], "downloads": 0, "likes": 0}
        self.send_json(
            {"_id": "0", "id": match["name"], "sha": repository.commit(), **switches, **counts, "siblings": files}
        )

    def _send_tree(self, match: re.Match[str]) -> None:
        if not (repository := self.find_repository(match)) or not self._check_revision(repository, match["revision"]):
            return
        below = f"{match['folder']}/" if match["folder"] else ""
        files = [file for file in repository.files() if file.startswith(below)]
        self.send_json([repository.entry(file) for file in files])

    def _send_file(self, match: re.Match[str]) -> None:
        if not (repository := self.find_repository(match)) or not self._check_revision(repository, match["revision"]):
            return
        path = repository.path(match["file"])
        if path is None:
            self.send_hub_error(HTTPStatus.NOT_FOUND, "EntryNotFound", "Entry not found")
            return
        size = path.stat().st_size
        byte_range = _RANGE.fullmatch(self.headers.get("Range", ""))
        first, last = (
            (int(byte_range[1]), min(int(byte_range[2] or size - 1), size - 1)) if byte_range else (0, size - 1)
        )
        self.send_response(HTTPStatus.PARTIAL_CONTENT if byte_range else HTTPStatus.OK)
        if byte_range:
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("ETag", f'"{repository.sha256(match["file"])}"')
        self.send_header("X-Repo-Commit", repository.commit())
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        if self.command != "HEAD":
            self._send_part(path, first, last + 1)

    def _send_part(self, path: Path, first: int, end: int) -> None:
        with path.open("rb") as file:
            file.seek(first)
            while first < end and (block := file.read(min(_BLOCK, end - first))):
                self.wfile.write(block)
                first += len(block)

    def _check_revision(self, repository: Repository, revision: str | None) -> bool:
        if revision in (None, "main", repository.commit()):
            return True
        self.send_hub_error(HTTPStatus.NOT_FOUND, "RevisionNotFound", f"Invalid rev id: {revision}")
        return False

    def send_json(self, value: Any) -> None:
        """Send a 200 response with a JSON body."""
        body = json.dumps(value).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_hub_error(self, status: HTTPStatus, code: str, message: str) -> None:
        """Send an error response in the form of the real hub.

        Args:
            status: HTTP status.
            code: value of the header `X-Error-Code`; empty for none.
            message: error message for the header `X-Error-Message` and the body.
        """
        body = json.dumps({"error": message}).encode()
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", message)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Log nothing, because the log of the step already lists its downloads."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, except a lost connection of a client that was killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@dataclass
class HubServer:
    """The hub server, also as a context manager.

    Args:
        root: folder with `models/<org>/<name>` and `datasets/<org>/<name>`.
        port: TCP port on 127.0.0.1; 0 takes a free one.
        tokens: required tokens by repository; other repositories are public. As on the real hub, the token of another
            repository gets 403. An unknown token or none gets 401.
        handler: class of the request handler.
    """

    root: Path
    port: int = 0
    tokens: Mapping[str, str] = field(default_factory=dict, repr=False)
    handler: type[HubHandler] = HubHandler
    _server: ThreadingHTTPServer | None = field(default=None, init=False, repr=False)

    @property
    def url(self) -> str:
        """URL of the server for HF_ENDPOINT, valid after `start()`."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server on a thread.

        Raises:
            OSError: the port is in use.
        """
        served = {"root": Path(self.root).resolve(), "tokens": dict(self.tokens)}
        self._server = _Server(("127.0.0.1", self.port), type("Handler", (self.handler,), served))
        self.port = self._server.server_port
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="hub", daemon=True
        ).start()

    def stop(self) -> None:
        """Stop the server and free its port."""
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> HubServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@functools.lru_cache(maxsize=4096)
def _sha256(path: Path, changed: int, size: int) -> str:  # noqa: ARG001 - a changed file is another key
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def main() -> None:
    """Run `python -m trainjob_local.demo.hub ROOT [--port PORT]` until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(
        prog="python -m trainjob_local.demo.hub", description="A read-only Hugging Face hub on loopback."
    )
    parser.add_argument("root", type=Path, help="folder with models/ORG/NAME and datasets/ORG/NAME")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):  # a background process of a shell ignores SIGINT by default
        signal.signal(number, lambda *_: stopped.set())
    with HubServer(options.root, options.port) as hub:
        print(f"export HF_ENDPOINT={hub.url}", flush=True)
        stopped.wait()
    print("stopped", flush=True)


if __name__ == "__main__":
    main()
