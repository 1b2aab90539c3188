"""Immediate deletion of one TrainJob on connections that are already open.

It also works if the creation of the TrainJob is still in progress.
"""

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
_NO_ANSWER = (TrainJobError, ValueError)  # ValueError: the page of a proxy in place of JSON
# Seconds from the signal to each request. If the TrainJob exists, the first request is enough; the others are for a
# connection that hangs. If its creation is in progress, requests are repeated for as long as the creation may take. The
# API server drops a request whose client dies before it is processed (kube-apiserver 1.36, about 5 ms). Therefore there
# are several early requests.
_KNOWN = (0.0, 0.5, 1.0, 1.5, 2.0)
_BEING_CREATED = (0.0, 0.02, 0.05, 0.1, 0.2, *(0.4 + 0.5 * n for n in range(60)))


@dataclass
class Order:
    """Request to delete one TrainJob, sent several times until it has an effect.

    Attributes:
        name: name of the TrainJob.
        namespace: namespace of the TrainJob.
        uid: uid of the TrainJob. None while its creation is in progress; then the request is repeated until it exists.
        ended: takes the result as text; called on another thread, possibly more than once.
        look_first: whether the TrainJob may have ended. It is then read first, and retained if it has ended.
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
        """Return the seconds until the next attempt is due; None if no attempt is left.

        Each attempt is returned once, to the thread that calls first.
        """
        with self._lock:
            moment = next(self._moments, None)
        return None if moment is None else max(0.0, self._began + moment - time.monotonic())

    def carry_out(self, cluster: Cluster) -> None:
        """Send one request, and report its result unless another attempt is worth it."""
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
        """Report that the TrainJob could not be deleted, because no attempt is left."""
        self.ended(f"could not be deleted: {self._error}")


class Deleters:
    """Threads that each keep a connection open until they get an [Order][].

    The connections are separate, because the thread that gives the order may have been interrupted while it used
    another one. There are several, because a response takes time, and a creation may take effect between two requests.
    """

    def __init__(self, connection: Connection, keep_warm_seconds: float) -> None:
        """Open the connections in the background.

        Args:
            connection: how to reach the cluster.
            keep_warm_seconds: seconds between two uses of a connection, so that neither end closes it.

        Raises:
            NoClusterConfigured: there is no cluster to connect to.
        """
        self._keep_warm_seconds = keep_warm_seconds
        self._orders: list[queue.SimpleQueue[Order | None]] = []
        for number in range(_THREADS):
            orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
            self._orders.append(orders)
            told = (Cluster(connection, patience=0.0), orders)
            threading.Thread(target=self._serve, args=told, name=f"deleter-{number}", daemon=True).start()

    def give(self, order: Order) -> None:
        """Start to process an order, and drop an earlier one.

        It is safe to call this method in a signal handler.
        """
        for orders in self._orders:
            orders.put(order)

    def close(self) -> None:
        """Close the connections in the background."""
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
