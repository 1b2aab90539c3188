"""TCP proxy in front of a cluster's API server, to simulate outages and delayed responses."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from http import HTTPStatus

from tests.support.plain_port import plain_port
from trainjob_local import LocalCluster


class ApiProxy:
    """TCP proxy to a cluster's API server, used as a context manager.

    It accepts plain HTTP. It sends no client certificate to a real API server, so that its clients need a token.

    Attributes:
        server: the URL to give to clients.
    """

    def __init__(self, laptop: LocalCluster) -> None:
        self._target, self._kubeconfig = plain_port(laptop), laptop.kubeconfig
        self._address = ("127.0.0.1", 0)
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._withheld_text: bytes | None = None
        self._rejection: bytes | None = None
        self._delay = 0.0
        self._listener: socket.socket | None = None
        self._may_respond = threading.Event()
        self.start_listening()
        self.server = "http://{}:{}".format(*self._address)

    def __enter__(self) -> ApiProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.release_responses()
        self.disconnect()

    def airflow_connection(self) -> str:
        """Return an Airflow connection to the cluster through this proxy."""
        kubeconfig = json.loads(self._kubeconfig.read_text())
        kubeconfig["clusters"][0]["cluster"]["server"] = self.server
        return json.dumps({"conn_type": "kubernetes", "extra": {"kube_config": kubeconfig, "namespace": "default"}})

    def disconnect(self) -> None:
        """Refuse new connections and close the open ones."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        self._close_sockets()

    def start_listening(self) -> None:
        """Listen again at the same address."""
        listener = self._listener = socket.create_server(self._address, backlog=512)
        self._address = listener.getsockname()
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

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
        self._close_sockets()

    def accept_requests(self) -> None:
        """Forward the requests again."""
        self._rejection = None

    def _close_sockets(self) -> None:
        with self._lock:
            broken, self._sockets = self._sockets, set()
        for one in broken:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
                if self._rejection:
                    threading.Thread(target=_reject, args=(client, self._rejection), daemon=True).start()
                    continue
                server = socket.create_connection(self._target)
            except OSError:
                return
            with self._lock:
                self._sockets |= {client, server}
            held: list[threading.Event] = []  # a response is forwarded only after these events are set
            for start, end, wait in ((client, server, None), (server, client, held)):
                threading.Thread(target=self._forward, args=(start, end, held, wait), daemon=True).start()

    def _forward(
        self,
        start: socket.socket,
        end: socket.socket,
        withheld: list[threading.Event],
        wait_for: list[threading.Event] | None,
    ) -> None:
        try:
            while data := start.recv(65536):
                if wait_for is None and self._withheld_text is not None and self._withheld_text in data:
                    withheld.append(self._may_respond)
                for event in wait_for or ():
                    event.wait()
                if wait_for is not None and self._delay:
                    time.sleep(self._delay)
                end.sendall(data)
        except OSError:
            pass  # one side has closed its connection, so the other one is closed, too
        for one in (start, end):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        with self._lock:
            self._sockets -= {start, end}


def _format_error(status: HTTPStatus) -> bytes:
    reason = status.phrase.replace(" ", "")
    content = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status.value}
    body = json.dumps({**content, "message": status.phrase})
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    retry_after = "Retry-After: 1\r\n" if status is HTTPStatus.TOO_MANY_REQUESTS else ""
    return f"{head}{retry_after}Connection: close\r\n\r\n{body}".encode()


def _reject(client: socket.socket, response: bytes) -> None:
    """Answer one request with an error."""
    with contextlib.suppress(OSError), client:
        client.recv(65536)
        client.sendall(response)
