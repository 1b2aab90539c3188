"""An API server for one kind of object, whose faults a test scripts down to single bytes.

Each test has its own objects. The behaviour of a real API server (versions, pages, 410, watches from a future version
that send nothing) is the one that tests/conformance verifies.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs"
_GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}

Response = tuple[int, dict[str, str], bytes]
Object = dict[str, Any]


class ScriptedApi:
    """Scripted API server; a context manager.

    Attributes:
        jobs: the objects by name.
        version: the resourceVersion of the last write.
        request_counts: number of requests, by `list`, `more` (a list's further pages), `watch` and `version`.
        responders: functions that return the response to a `list`, `more`, `watch` or `version`; None means the normal
            response.
        token: the accepted bearer token; empty accepts all.
        url: the server's URL.
        open_watches: number of open watches.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Object] = {}
        self.version, self.token = 100, ""
        self.request_counts: Counter[str] = Counter()
        self.responders: dict[str, Callable[[], Response | None]] = {}
        self.is_unchunked = False  # watches are not chunked, as behind a proxy of HTTP/1.0
        self._oldest_version = 100
        self._history: list[tuple[int, bytes]] = []
        self._streams: set[_Handler] = set()
        self._pages: dict[str, list[Object]] = {}
        self.changed = threading.Condition(threading.RLock())
        # A second socket that is bound to the port and never listens. It keeps the port while the server does not
        # listen, so that connections fail.
        self._port_holder = socket.socket()
        self._port_holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port_holder.bind(("127.0.0.1", 0))
        self._address = self._port_holder.getsockname()
        self.start_listening()
        self.url = "http://{}:{}".format(*self._address)

    def __enter__(self) -> ScriptedApi:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()
        self._port_holder.close()

    @property
    def open_watches(self) -> int:
        return len(self._streams)

    # -- objects ------------------------------------------------------------------------------------------------------

    def write(self, name: str, phase: str = "Running", uid: str = "") -> Object:
        """Create or change a job."""
        with self.changed:
            existing = self.jobs.get(name)
            uid = uid or (existing["metadata"]["uid"] if existing else uuid.uuid4().hex)
            self.version += 1
            self.jobs[name] = trainjob(name, uid, self.version, phase)
            self._add_event("MODIFIED" if existing else "ADDED", self.jobs[name])
            return self.jobs[name]

    def delete(self, name: str) -> None:
        with self.changed:
            self.version += 1
            deleted = self.jobs.pop(name)
            meta = {**deleted["metadata"], "resourceVersion": str(self.version)}
            self._add_event("DELETED", {**deleted, "metadata": meta})

    def bookmark(self) -> None:
        with self.changed:
            self._add_event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}})

    def _add_event(self, kind: str, obj: Object) -> None:
        self._history.append((self.version, watch_line(kind, obj)))
        self.changed.notify_all()

    def compact(self) -> None:
        """Drop the history; a watch from an earlier version gets 410."""
        with self.changed:
            self._oldest_version, self._history = self.version, []
            self._pages.clear()

    def restore(self, version: int) -> None:
        """Set an earlier version, as an etcd that was restored from a backup does.

        All versions are older than those that the API server has sent, and the streams end.
        """
        with self.changed:
            self.version, self._oldest_version, self._history = version, version, []
            self.interrupt_watches("end")

    # -- faults -------------------------------------------------------------------------------------------------------

    def interrupt_watches(self, action: str, content: bytes = b"") -> int:
        """Send content to every open stream, then end or break it.

        Args:
            action: `end` (properly), `reset`, `silence`, `close` (in the middle of a chunk), or `send` to send only the
                content.
            content: bytes to send first.

        Returns:
            The number of open streams.
        """
        with self.changed:
            for stream in self._streams:
                stream.commands.append((action, content))
            self.changed.notify_all()
            return len(self._streams)

    def respond_with(self, verb: str, response: Response, times: int = 1) -> None:
        """Use this response for the next `times` requests of a verb."""
        remaining = [response] * times
        self.responders[verb] = lambda: remaining.pop() if remaining else None

    def disconnect(self) -> None:
        """Refuse new connections, and reset the open ones."""
        self._server.shutdown()
        self._server.server_close()
        with self.changed:
            for connection in list(self._server.open):
                reset(connection)
            self.changed.notify_all()

    def start_listening(self) -> None:
        """Listen again at the same address."""
        self._server = _Server(self._address, self)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    # -- for the handler ----------------------------------------------------------------------------------------------

    def events_since(self, version: int) -> list[tuple[int, bytes]]:
        return [(at, sent) for at, sent in self._history if at > version or (at == version and b'"BOOKMARK"' in sent)]

    def is_too_old(self, version: int) -> bool:
        return version < self._oldest_version

    def list_page(self, limit: int, token: str) -> Response:
        with self.changed:
            if token and token not in self._pages:
                return 410, {}, json.dumps(_GONE).encode()
            rest = self._pages[token] if token else sorted(self.jobs.values(), key=lambda job: job["metadata"]["name"])
            version = token.partition("-")[0] or str(self.version)
            items, rest = rest[:limit], rest[limit:]
            metadata = {"resourceVersion": version}
            if rest:
                metadata["continue"] = f"{version}-{items[-1]['metadata']['name']}"
                self._pages[metadata["continue"]] = rest
            return 200, {}, json.dumps({"kind": "TrainJobList", "metadata": metadata, "items": items}).encode()


def trainjob(name: str, uid: str, version: int, phase: str) -> Object:
    """Return a TrainJob with the fields that waiters read."""
    labels = {"trainjob.dev/run-key": "0123456789abcdef"}
    metadata = {"name": name, "namespace": "default", "uid": uid, "resourceVersion": str(version), "labels": labels}
    conditions = [{"type": phase, "status": "True", "reason": "r", "message": "m"}] if phase != "Running" else []
    return {
        "metadata": {**metadata, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"conditions": conditions},
    }


def watch_line(kind: str, obj: object) -> bytes:
    """Return one line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def reset(connection: socket.socket) -> None:
    """Close a connection so that the peer receives a RST."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)  # wakes the thread that reads from it here
        os.close(connection.detach())


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], api: ScriptedApi) -> None:
        self.api = api
        self.open: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def handle_error(self, *_: object) -> None:
        """Ignore errors of connections that the client has closed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.api = self.server.api
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.open.add(self.connection)
        self.commands: list[tuple[str, bytes]] = []

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        verb = "watch" if query.get("watch") else "more" if query.get("continue") else "list"
        verb = "version" if query.get("limit") == "1" else verb
        self.api.request_counts[verb] += 1
        scripted = self.api.responders.get(verb, lambda: None)()
        if scripted is None and self.api.token and self.headers.get("Authorization") != f"Bearer {self.api.token}":
            scripted = error_response(401)
        if scripted is not None:
            self._respond(scripted)
        elif verb == "watch":
            self._watch(int(query["resourceVersion"]), time.monotonic() + int(query["timeoutSeconds"]))
        else:
            self._respond(self.api.list_page(int(query["limit"]), query.get("continue", "")))

    def _respond(self, response: Response) -> None:
        code, headers, body = response
        if code == 0:
            reset(self.connection)
            self.close_connection = True
            return
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = "Connection" in headers

    def _watch(self, version: int, deadline: float) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header(*(("Connection", "close") if self.api.is_unchunked else ("Transfer-Encoding", "chunked")))
        self.end_headers()
        self.wfile.flush()
        with self.api.changed:
            self.api._streams.add(self)
            self.api.changed.notify_all()
        try:
            self._stream(version, deadline)
        except (OSError, ValueError):
            pass  # the client has closed the connection
        finally:
            self.close_connection = True
            with self.api.changed:
                self.api._streams.discard(self)
                self.api.changed.notify_all()

    def _stream(self, version: int, deadline: float) -> None:
        bookmarked = None
        while True:
            with self.api.changed:
                if self.api.is_too_old(version):
                    self.commands.append(("end", watch_line("ERROR", _GONE)))
                if time.monotonic() >= deadline:
                    self.commands.append(("end", b""))
                commands, self.commands = self.commands, []
                events = [] if commands else [each for each in self.api.events_since(version) if each != bookmarked]
                if not events and not commands:
                    self.api.changed.wait(0.2)
                    self._raise_if_closed()
            for action, content in commands:
                self._send_chunk(content)
                if self._execute(action):
                    return
            for at, sent in events:
                self._send_chunk(sent)
                version = at
                bookmarked = (at, sent) if b'"BOOKMARK"' in sent else bookmarked

    def _execute(self, action: str) -> bool:
        """Execute an action, and return whether the stream is over."""
        if action == "end" and not self.api.is_unchunked:
            self.wfile.write(b"0\r\n\r\n")
        elif action == "close" and not self.api.is_unchunked:
            self.wfile.write(b"fff\r\n{")  # the rest of the chunk is not sent
        elif action == "reset":
            reset(self.connection)
        elif action == "silence":
            with contextlib.suppress(OSError):
                while self.connection.recv(1):
                    pass
        return action != "send"

    def _send_chunk(self, content: bytes) -> None:
        if content:
            self.wfile.write(content if self.api.is_unchunked else b"%x\r\n%s\r\n" % (len(content), content))

    def _raise_if_closed(self) -> None:
        """Raise an error if the client has closed the connection."""
        self.connection.setblocking(False)
        try:
            if not self.connection.recv(1, socket.MSG_PEEK):
                raise OSError("closed")
        except BlockingIOError:
            pass
        finally:
            self.connection.setblocking(True)

    def log_message(self, *_: object) -> None:
        """Write no access log."""


def error_response(code: int, **headers: str) -> Response:
    """Return an error response of an API server."""
    body = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": "R", "message": f"refused with {code}"}
    return code, headers, json.dumps(body).encode()


def foreign_response(body: bytes = b"<html>log in</html>", code: int = 200, **headers: str) -> Response:
    """Return a response that does not come from an API server, such as a login page."""
    return code, {"Content-Type": "text/html", **headers}, body
