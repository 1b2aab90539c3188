"""Opening clusters: one of one's own, or the one that all of a process share."""

from __future__ import annotations

import os
import threading

from trainjob.client.cluster import Cluster
from trainjob.client.connection import Connection

_MOST = 64  # a connection whose content changes, such as a token in it, is another one each time


def connect(connection: Connection | None = None) -> Cluster:
    """Open a cluster of one's own; see [Cluster][]."""
    return Cluster(connection)


def shared_cluster(connection: Connection | None = None) -> Cluster:
    """The process's one [Cluster][] for a connection, so that all who wait share its watches.

    A forked child gets its own, as threads and sockets do not survive a fork.
    """
    return _shared.cluster(connection or Connection())


class _Shared:
    """The clusters of this process; also one when many threads ask for the same at once."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin anew, in a child process."""
        self._lock = threading.Lock()  # the parent's may be held for ever
        self._clusters: dict[Connection, Cluster] = {}

    def cluster(self, connection: Connection) -> Cluster:
        """The one for a connection."""
        with self._lock:
            if connection not in self._clusters:
                if len(self._clusters) >= _MOST:
                    del self._clusters[next(iter(self._clusters))]  # who has it keeps it
                self._clusters[connection] = Cluster(connection)
            return self._clusters[connection]


_shared = _Shared()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.forget)
