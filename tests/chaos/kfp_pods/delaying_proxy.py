"""A TCP proxy between a launcher and its API server that delays every byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from tests.support.plain_port import plain_port
from trainjob_local import LocalCluster


class DelayingProxy:
    """A proxy that delays the traffic with a laptop cluster's API server; a context manager.

    The proxy delivers the bytes of a client even if the client is dead by then, as a real network does.

    Args:
        laptop: the cluster.
        latency: seconds from a request to its response, half of them for each direction.
    """

    def __init__(self, laptop: LocalCluster, latency: float) -> None:
        self._target, self._laptop, self._delay = plain_port(laptop), laptop, latency / 2
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._events: dict[bytes, threading.Event] = {}
        self._serving: set[asyncio.Task[Any] | None] = set()

    def __enter__(self) -> DelayingProxy:
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._server = started.result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig that points at the proxy."""
        content = yaml.safe_load(self._laptop.kubeconfig.read_text())
        port = self._server.sockets[0].getsockname()[1]
        content["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{port}"
        path.write_text(json.dumps(content))
        return path

    def event_when_sent(self, content: bytes) -> threading.Event:
        """Return an event that is set when a client sends these bytes."""
        self._events[content] = threading.Event()
        return self._events[content]

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        # When its client is gone, nothing else references this task: asyncio has only weak references to tasks and
        # readers.
        self._serving.add(asyncio.current_task())
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        sending = self._forward(client_reader, server_writer, self._set_events)
        receiving = self._forward(server_reader, client_writer, lambda _: None)
        try:
            await asyncio.gather(sending, receiving)
        finally:
            for writer in (client_writer, server_writer):
                writer.close()
            self._serving.discard(asyncio.current_task())

    def _set_events(self, piece: bytes) -> None:
        for content, event in list(self._events.items()):
            if content in piece:
                event.set()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, on_piece: Callable[[bytes], None]
    ) -> None:
        """Forward the pieces in order, each one and the end of the stream after the same delay."""
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sender = asyncio.create_task(self._send(pieces, writer))
        piece = b"-"
        while piece:
            try:
                piece = await reader.read(65536)
            except OSError:
                piece = b""
            on_piece(piece)
            pieces.put_nowait((self._loop.time() + self._delay, piece))
        await sender

    async def _send(self, pieces: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(due - self._loop.time())
                if not piece:
                    writer.write_eof()
                    return
                writer.write(piece)
                await writer.drain()
