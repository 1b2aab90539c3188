"""Deleting one TrainJob at once, on connections that are open already, also one whose creation is still on its way."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from trainjob.client import Cluster, Connection
from trainjob.errors import ClusterError, TrainJobError
from trainjob.lifecycle.queues import get_with_timeout
from trainjob.status import judge

_THREADS = 3
_NO_ANSWER = (TrainJobError, ValueError)  # ValueError: a proxy's page in place of JSON
# Seconds from the signal to each request. For one that exists the first is enough; the others are for a connection that
# hangs. One that is being created is asked for until it is there, for as long as its creation may take. A request whose
# client dies before it is carried out is dropped (kube-apiserver 1.36, some 5 ms): early ones count, and several.
_KNOWN = (0.0, 0.5, 1.0, 1.5, 2.0)
_BEING_CREATED = (0.0, 0.02, 0.05, 0.1, 0.2, *(0.4 + 0.5 * n for n in range(60)))


@dataclass
class Order:
    """Delete this TrainJob.

    Attributes:
        name: its name.
        namespace: where it is.
        uid: its uid; None while its creation is on its way, and then it is asked for until it is there.
        ended: takes what became of it, in words; called on another thread, possibly more than once.
        look_first: it may have ended by itself, and then it stays.
    """

    name: str
    namespace: str
    uid: str | None
    ended: Callable[[str], None]
    look_first: bool = False
    _began: float = field(default_factory=time.monotonic)
    _error: str = "its creation has not taken effect"

    def __post_init__(self) -> None:
        self._moments: Iterator[float] = iter(_BEING_CREATED if self.uid is None else _KNOWN)
        self._lock = threading.Lock()

    def pause(self) -> float | None:
        """Seconds until the next request is due, for whoever asks first; None when there is none left."""
        with self._lock:
            moment = next(self._moments, None)
        return None if moment is None else max(0.0, self._began + moment - time.monotonic())

    def carry_out(self, cluster: Cluster) -> None:
        """Send one request; what it leads to is told unless it is worth another one."""
        try:
            if self.look_first and judge(cluster.get_trainjob(self.name, self.namespace)).phase.finished:
                self.ended("was left alone, as it has ended")
                return
            deleted = cluster.delete_trainjob(self.name, self.namespace, self.uid)
        except _NO_ANSWER as error:
            self._error = str(error)
            if isinstance(error, ClusterError) and not error.retryable:
                self.give_up()
            return
        if deleted or self.uid is not None:
            self.ended("was deleted" if deleted else "was gone")

    def give_up(self) -> None:
        """There is no request left."""
        self.ended(f"could not be deleted: {self._error}")


class Deleters:
    """A few threads that do nothing but keep a connection open each, until there is an [Order][].

    Connections of their own, as whoever gives the order may have been interrupted while it used another; several, as
    an answer takes its time, and a creation may take effect between two requests.
    """

    def __init__(self, connection: Connection, keep_warm_seconds: float) -> None:
        """Open the connections, in the background.

        Args:
            connection: how to reach the cluster.
            keep_warm_seconds: how often to use them, so that neither end closes them.

        Raises:
            NoClusterConfigured: there is nothing to connect with.
        """
        self._keep_warm_seconds = keep_warm_seconds
        self._orders: list[queue.SimpleQueue[Order | None]] = []
        for number in range(_THREADS):
            orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
            self._orders.append(orders)
            told = (Cluster(connection, patience=0.0), orders)
            threading.Thread(target=self._serve, args=told, name=f"deleter-{number}", daemon=True).start()

    def give(self, order: Order) -> None:
        """Carry it out; safe in a signal handler. An order before it is dropped."""
        for orders in self._orders:
            orders.put(order)

    def close(self) -> None:
        """Close the connections, in the background."""
        for orders in self._orders:
            orders.put(None)

    def _serve(self, cluster: Cluster, orders: queue.SimpleQueue[Order | None]) -> None:
        order: Order | None = None
        pause = 0.0
        while True:
            try:
                order = get_with_timeout(orders, pause)
                if order is None:
                    cluster.close()
                    return
            except queue.Empty:
                self._act(cluster, order)
            pause, order = self._next(order)

    def _act(self, cluster: Cluster, order: Order | None) -> None:
        if order is not None:
            order.carry_out(cluster)
        else:
            with contextlib.suppress(*_NO_ANSWER):
                cluster.touch()

    def _next(self, order: Order | None) -> tuple[float, Order | None]:
        if order is None:
            return self._keep_warm_seconds, None
        pause = order.pause()
        if pause is None:
            order.give_up()
            return self._keep_warm_seconds, None
        return pause, order
