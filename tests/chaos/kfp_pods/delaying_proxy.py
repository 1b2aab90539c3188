"""A TCP proxy between a launcher and its API server that delays every byte."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from tests.support.api_proxy import ApiProxy
from tests.support.tcp_proxy import ProxiedConnection, delayed
from trainjob_local import LocalCluster


class DelayingProxy(ApiProxy):
    """A proxy that delays the traffic with a laptop cluster's API server; a context manager.

    The proxy delivers the bytes of a client even if the client is dead by then, as a real network does.

    Args:
        laptop: the cluster.
        latency: seconds from a request to its response, half of them for each direction.
    """

    def __init__(self, laptop: LocalCluster, latency: float) -> None:
        self._seconds = latency / 2
        self._events: dict[bytes, threading.Event] = {}
        super().__init__(laptop)

    def event_when_sent(self, content: bytes) -> threading.Event:
        """Return an event that is set when a client sends these bytes."""
        self._events[content] = threading.Event()
        return self._events[content]

    def filter_requests(self, connection: ProxiedConnection, pieces: Iterator[bytes]) -> Iterator[bytes]:
        return super().filter_requests(connection, delayed(self._set_events(pieces), self._seconds))

    def filter_responses(self, connection: ProxiedConnection, pieces: Iterator[bytes]) -> Iterator[bytes]:
        return delayed(super().filter_responses(connection, pieces), self._seconds)

    def _set_events(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            for content, event in list(self._events.items()):
                if content in piece:
                    event.set()
            yield piece
