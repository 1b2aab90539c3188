"""TCP proxy in front of a cluster's API server, to simulate outages, and requests and responses that arrive late."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from tests.support.plain_port import plain_port
from tests.support.tcp_proxy import ProxiedConnection, TcpProxy
from trainjob_local import LocalCluster


class ApiProxy(TcpProxy):
    """TCP proxy to a cluster's API server, used as a context manager.

    It accepts plain HTTP. It sends no client certificate to a real API server, so that its clients need a token.
    """

    def __init__(self, laptop: LocalCluster) -> None:
        self._held_text: bytes | None = None
        self._withheld_text: bytes | None = None
        self._withheld: dict[ProxiedConnection, threading.Event] = {}
        self._rejection: bytes | None = None
        self._delay = 0.0
        self._may_request, self._may_respond = threading.Event(), threading.Event()
        super().__init__(plain_port(laptop))
        self._kubeconfig = laptop.kubeconfig

    def __exit__(self, *_: object) -> None:
        self.release_requests()
        self.release_responses()
        super().__exit__()

    @property
    def kubeconfig(self) -> dict[str, Any]:
        """The laptop cluster's kubeconfig, with the proxy as its server."""
        kubeconfig: dict[str, Any] = json.loads(self._kubeconfig.read_text())
        kubeconfig["clusters"][0]["cluster"]["server"] = self.url
        return kubeconfig

    def airflow_connection(self) -> str:
        """Return an Airflow connection to the cluster through this proxy."""
        extra = {"kube_config": self.kubeconfig, "namespace": "default"}
        return json.dumps({"conn_type": "kubernetes", "extra": extra})

    def hold_requests(self, text: str) -> threading.Event:
        """Hold the requests that contain this text, until [release_requests][].

        Returns:
            An event that is set as soon as such a request has left its client.
        """
        self._held_text, self._request_is_held = text.encode(), threading.Event()
        return self._request_is_held

    def release_requests(self) -> None:
        """Let the held requests reach the API server."""
        self._may_request.set()

    def withhold_responses(self, text: str) -> None:
        """Withhold the responses to requests that contain this text.

        The API server still executes these requests. [release_responses][] ends the withholding.
        """
        self._may_respond = threading.Event()
        self._withheld_text = text.encode()

    def release_responses(self) -> None:
        """Forward the responses that were withheld."""
        self._withheld_text = None
        self._may_respond.set()

    def delay_responses(self, seconds: float) -> None:
        """Forward each part of a response only after some seconds; 0 ends this."""
        self._delay = seconds

    def reject_requests(self, status: HTTPStatus) -> None:
        """Close the open connections, and answer new requests with an error, such as 401 or 429.

        [accept_requests][] ends this.
        """
        self._rejection = _format_error(status)
        self.close_connections()

    def accept_requests(self) -> None:
        """Forward the requests again."""
        self._rejection = None

    def serve(self, client: socket.socket) -> None:
        """Forward a connection, or answer its first request with an error."""
        if self._rejection is None:
            super().serve(client)
            return
        with client, contextlib.suppress(OSError):
            client.recv(65536)
            client.sendall(self._rejection)

    def filter_requests(self, connection: ProxiedConnection, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            if self._held_text is not None and self._held_text in piece:
                self._request_is_held.set()
                self._may_request.wait(60)
            if self._withheld_text is not None and self._withheld_text in piece:
                self._withheld[connection] = self._may_respond
            yield piece

    def filter_responses(self, connection: ProxiedConnection, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            if connection in self._withheld:
                self._withheld[connection].wait()
            time.sleep(self._delay)
            yield piece


def _format_error(status: HTTPStatus) -> bytes:
    reason = status.phrase.replace(" ", "")
    content = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status.value}
    body = json.dumps({**content, "message": status.phrase})
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    retry_after = "Retry-After: 1\r\n" if status is HTTPStatus.TOO_MANY_REQUESTS else ""
    return f"{head}{retry_after}Connection: close\r\n\r\n{body}".encode()
