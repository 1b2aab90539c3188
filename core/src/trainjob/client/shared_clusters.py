"""Functions that open a cluster: a new one, or the one that a process shares."""

from __future__ import annotations

import os
import threading

from trainjob.client.cluster import Cluster
from trainjob.client.connection import Connection

_MAX_CLUSTERS = 64  # a connection whose content changes, such as a token in it, needs another cluster each time


def connect(connection: Connection | None = None) -> Cluster:
    """Open a cluster that the caller does not share; see [Cluster][].

    A forked child must open its own, because threads, sockets and held locks do not survive a fork.
    """
    return Cluster(connection)


def shared_cluster(connection: Connection | None = None) -> Cluster:
    """Return the process's [Cluster][] for a connection, so that waiters share its watches.

    A forked child gets its own cluster, because threads and sockets do not survive a fork.
    """
    return _shared.get(connection or Connection())


class _SharedClusters:
    """The clusters of this process, one for each connection.

    Threads that request the same connection at the same time get the same cluster.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all clusters, in a child process after a fork."""
        self._lock = threading.Lock()  # the parent's lock may be held forever
        self._opened: dict[Connection, _OpenedOnce] = {}

    def get(self, connection: Connection) -> Cluster:
        """Return the cluster of a connection; open it if it does not exist yet."""
        with self._lock:
            if connection not in self._opened:
                if len(self._opened) >= _MAX_CLUSTERS:
                    del self._opened[next(iter(self._opened))]  # its users keep their reference
                self._opened[connection] = _OpenedOnce(connection)
            opened = self._opened[connection]
        return opened.get()


class _OpenedOnce:
    """A cluster that its first caller opens.

    Callers of other connections do not wait for it.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._cluster: Cluster | None = None

    def get(self) -> Cluster:
        with self._lock:  # a credential plugin may take long, or fail for a minute
            self._cluster = self._cluster or Cluster(self._connection)
            return self._cluster


_shared = _SharedClusters()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_shared.clear)
