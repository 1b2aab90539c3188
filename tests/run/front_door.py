"""A door in front of a cluster that answers some requests itself and hands everything else through."""

from __future__ import annotations

from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import urllib3


class Front(ThreadingHTTPServer):
    """The door.

    Attributes:
        answers: (status code, body) by path, or by method and path.
        asked: how often each method and path came.
        url: where it listens.
    """

    daemon_threads = True

    def __init__(self, behind: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = behind
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: Counter[str] = Counter()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Front

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
        self.server.asked[f"{self.command} {path}"] += 1
        answers = self.server.answers
        code, content = answers.get(f"{self.command} {path}") or answers.get(path) or self._behind(body)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _behind(self, body: bytes | None) -> tuple[int, bytes]:
        headers = {name: self.headers[name] for name in ("Authorization", "Content-Type") if self.headers[name]}
        answer = urllib3.request(
            self.command, self.server.behind + self.path, body=body, headers=headers, retries=False
        )
        return answer.status, answer.data

    do_GET = do_POST = do_DELETE = do_PATCH = _answer  # noqa: N815 - as http.server calls them

    def log_message(self, *_: object) -> None:
        """Says nothing."""
