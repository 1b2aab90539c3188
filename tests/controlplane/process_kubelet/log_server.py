"""The kubelet's endpoint for logs, and for commands in isolated containers.

It serves `/containerLogs/NAMESPACE/POD/CONTAINER` and `/exec/NAMESPACE/POD/CONTAINER` as Kubernetes 1.36
`pkg/kubelet/server/server.go` does. It uses TLS, and accepts only clients with a certificate of the cluster's
authority.
"""

from __future__ import annotations

import contextlib
import ssl
import threading
import urllib.parse
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

from process_kubelet.exec_forwarding import forward_exec
from trainjob_local.kubelet.container_logs import LogOptions, format_since
from trainjob_local.kubelet.kubelet import Kubelet, LogUnavailable
from trainjob_local.objects import utc_now

__all__ = ["LogServer", "parse_log_options"]


def parse_log_options(query: Mapping[str, str]) -> LogOptions:
    """Return the log options of a request's query parameters.

    Raises:
        ValueError: a number or a time cannot be parsed.
    """
    seconds = query.get("sinceSeconds")
    return LogOptions(
        follow=query.get("follow") == "true",
        tail=int(query["tailLines"]) if "tailLines" in query else None,
        since=format_since(query.get("sinceTime", ""), int(seconds) if seconds else None, utc_now()),
        limit=int(query["limitBytes"]) if "limitBytes" in query else None,
        timestamps=query.get("timestamps") == "true",
    )


class LogServer:
    """TLS server of a kubelet's endpoint for logs and exec.

    Args:
        kubelet: kubelet whose logs are served.
        port: TCP port on 127.0.0.1.
        pki: folder with `ca.crt`, `kubelet.crt` and `kubelet.key`.
        exec_socket: socket of the program that runs commands in containers; None if there is no such program.
    """

    def __init__(self, kubelet: Kubelet, port: int, pki: Path, *, exec_socket: Path | None = None) -> None:
        class Handler(_Handler):
            pass

        Handler.kubelet, Handler.exec_socket = kubelet, exec_socket
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pki / "kubelet.crt", pki / "kubelet.key")
        tls.load_verify_locations(pki / "ca.crt")
        tls.verify_mode = ssl.CERT_REQUIRED
        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    def start(self) -> None:
        """Serve on a new thread."""
        threading.Thread(target=self._server.serve_forever, name="log-endpoint", daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    kubelet: Kubelet
    exec_socket: Path | None

    def do_POST(self) -> None:
        """Handle one request; SPDY clients send `exec` as POST."""
        self.do_GET()

    def do_GET(self) -> None:
        """Handle one request."""
        url = urllib.parse.urlsplit(self.path)
        query = {key: values[-1] for key, values in urllib.parse.parse_qs(url.query).items()}
        part = url.path.strip("/").split("/")
        if len(part) == 4 and part[0] == "containerLogs":
            self._send_logs(part[1:], query)
        elif len(part) == 4 and part[0] == "exec":
            self._forward_exec(part[1:])
        else:
            self._send_failure(404, "404 page not found")

    def _send_logs(self, segments: list[str], query: Mapping[str, str]) -> None:
        namespace, pod, container = segments
        try:
            options = parse_log_options(query)
            pieces = self.kubelet.open_log(
                (namespace, pod), container, options, previous=query.get("previous") == "true"
            )
        except LogUnavailable as error:
            return self._send_failure(error.code, str(error))
        except ValueError as error:
            return self._send_failure(400, str(error))
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")
        return None

    def _forward_exec(self, segments: list[str]) -> None:
        namespace, pod, name = segments
        found = self.kubelet.find_pod((namespace, pod))
        container = found.container(name) if found else None
        process = container.first_process_id() if container else None
        if process is None or self.exec_socket is None:
            return self._send_failure(404, f'container not found ("{name}")')
        self.close_connection = True
        with contextlib.suppress(OSError):  # either end may break off the connection
            forward_exec(
                cast("ssl.SSLSocket", self.connection),
                self.requestline,
                self.headers.items(),
                pid=process,
                exec_socket=self.exec_socket,
            )
        return None

    def _send_failure(self, code: int, text: str) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name of the base class
        """Write no access log."""
