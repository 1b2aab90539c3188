"""A plain TCP port in front of a TLS port, for proxies that read or change the requests that pass through them."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ssl
import threading
from urllib.parse import urlsplit

from trainjob_local import LocalCluster


def plain_port(laptop: LocalCluster) -> tuple[str, int]:
    """Return host and port at which a laptop cluster accepts plain HTTP."""
    return forward_to(laptop.server, str(laptop.ca_file))


@functools.cache
def forward_to(server: str, ca_file: str) -> tuple[str, int]:
    """Return host and port that forward to a server, until this process ends.

    For a URL with http these are those of the server itself.

    Args:
        server: URL of the server.
        ca_file: path of its certificate authority; not used for http.
    """
    address = urlsplit(server)
    assert address.hostname and address.port
    if address.scheme == "http":
        return address.hostname, address.port
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name=f"plain port of {server}", daemon=True).start()
    forwarder = _Forwarder(address.hostname, address.port, ssl.create_default_context(cafile=ca_file))
    started = asyncio.run_coroutine_threadsafe(asyncio.start_server(forwarder.serve, "127.0.0.1", 0, backlog=512), loop)
    host, port = started.result(10).sockets[0].getsockname()
    return str(host), int(port)


class _Forwarder:
    def __init__(self, host: str, port: int, context: ssl.SSLContext) -> None:
        self._host, self._port, self._context = host, port, context
        self._tasks: set[asyncio.Task[None] | None] = set()

    async def serve(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        """Forward one connection in both directions, until both sides have closed it."""
        task = asyncio.current_task()
        self._tasks.add(task)  # asyncio itself has only weak references to tasks
        try:
            server_reader, server_writer = await asyncio.open_connection(self._host, self._port, ssl=self._context)
            await asyncio.gather(_forward(client_reader, server_writer), _forward(server_reader, client_writer))
        except OSError:  # the server is down
            client_writer.transport.abort()
        finally:
            self._tasks.discard(task)


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()
