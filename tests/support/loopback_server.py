"""An HTTP server on loopback, for tests that replace a service of another vendor."""

from __future__ import annotations

import sys
import threading
from http.server import ThreadingHTTPServer
from socketserver import BaseRequestHandler
from typing import Any


class LoopbackServer(ThreadingHTTPServer):
    """A server that runs from its construction until `stop`, or the end of its `with` block.

    It ignores clients that disconnect.
    """

    daemon_threads = True

    def __init__(self, handler: type[BaseRequestHandler], address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        super().__init__(address, handler)
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"http://{self.server_address[0]!s}:{self.server_port}"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
