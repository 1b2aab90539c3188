"""The HTTP server on a TLS port; it also responds to clients that send plain HTTP.

uvicorn alone closes the connection of such a client without a response, and its user has to guess the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import uvicorn

__all__ = ["TlsServer"]

_LOG = logging.getLogger(__name__)
_TLS_HANDSHAKE = b"\x16"  # first byte of every TLS connection (RFC 8446, section 5.1)
_BEGIN_SECONDS, _RETRY_SECONDS, _CLOSE_SECONDS = 60.0, 1.0, 0.1
# A real API server sends the first sentence with 400 (Go 1.26, `net/http/server.go`). kubectl 1.36 shows the text of a
# 403, but not that of a 400.
_PLAIN_HTTP_RESPONSE = (
    b"HTTP/1.0 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    b"Client sent an HTTP request to an HTTPS server. Use the kubeconfig in the state folder "
    b"of the laptop cluster, which `trainjob local status` shows.\n"
)


class TlsServer(uvicorn.Server):
    """uvicorn's server, which accepts its connections itself.

    Args:
        config: settings of uvicorn.
        listener: the listening socket; the server closes it when it ends.
        context: certificate and settings of TLS.
    """

    def __init__(self, config: uvicorn.Config, listener: socket.socket, context: ssl.SSLContext) -> None:
        super().__init__(config)
        config.load()
        listener.setblocking(False)
        self._socket = listener
        self._listener = _TlsListener(listener, context, self._create_protocol)

    def _create_protocol(self) -> asyncio.Protocol:
        settings: dict[str, Any] = {"config": self.config, "server_state": self.server_state, "app_state": {}}
        protocol: asyncio.Protocol = self.config.http_protocol_class(**settings)
        return protocol

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Start to accept connections."""
        await super().startup(sockets=[])
        self._listener.start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - uvicorn's signature
        """Accept no further connections, and end the open ones."""
        await self._listener.close()
        ending = asyncio.ensure_future(super().shutdown(sockets=[self._socket]))
        while not ending.done():
            await asyncio.wait({ending}, timeout=_CLOSE_SECONDS)
            for connection in tuple(self.server_state.connections):
                if connection.transport.is_closing():  # a client with an idle connection does not answer close_notify
                    connection.transport.abort()
        await ending


class _TlsListener:
    """Tasks that accept connections and start TLS on them."""

    def __init__(
        self, listener: socket.socket, context: ssl.SSLContext, create_protocol: Callable[[], asyncio.Protocol]
    ) -> None:
        self._socket, self._context, self._create_protocol = listener, context, create_protocol
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start to accept connections."""
        self._run(self._accept())

    async def close(self) -> None:
        """Accept no further connections, and drop those that have not started TLS."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)  # the event loop itself keeps only weak references
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        while True:
            try:
                connection, _ = await asyncio.get_running_loop().sock_accept(self._socket)
            except OSError:  # for example, too many open files
                _LOG.exception("a connection can't be accepted")
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._run(self._begin(connection))

    async def _begin(self, connection: socket.socket) -> None:
        """Start TLS on a connection, or send the response to plain HTTP and close it."""
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, asyncio.TimeoutError):
            stack.callback(connection.close)
            first = await asyncio.wait_for(_peek(connection), _BEGIN_SECONDS)
            if first == _TLS_HANDSHAKE:
                stack.pop_all()  # the transport closes it
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(self._create_protocol, connection, ssl=self._context)
            elif first:
                await asyncio.wait_for(_refuse(connection), _BEGIN_SECONDS)


async def _peek(connection: socket.socket) -> bytes:
    """Wait for the first byte of a connection and return it; it stays in the socket."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    return connection.recv(1, socket.MSG_PEEK)


async def _refuse(connection: socket.socket) -> None:
    """Send the response to plain HTTP, and read until the client closes the connection.

    If the request were left unread, the kernel would reset the connection, and the response could be lost.
    """
    loop = asyncio.get_running_loop()
    await loop.sock_recv(connection, 65536)
    await loop.sock_sendall(connection, _PLAIN_HTTP_RESPONSE)
    connection.shutdown(socket.SHUT_WR)
    while await loop.sock_recv(connection, 65536):
        pass
