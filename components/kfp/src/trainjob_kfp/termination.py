"""Being told to end: the TrainJob goes first, as there may be no time for anything else.

Argo's emissary passes SIGTERM on and ends the container, with SIGKILL, within a second: its loop looks once a second
whether the command it started has ended, and KFP's own launcher, which is that command, ends at once (Argo 4.0
workflow/executor/emissary, KFP 2.17 backend/src/v2/component/launcher_v2.go). So the request goes out on a connection
that is open already, and before any line is written: standard output may be a pipe that nobody reads any more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from trainjob.cluster import Cluster, Connection
from trainjob.errors import TrainJobError
from trainjob.run import JobReference, cancel

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_KEEP_WARM_SECONDS = 30.0  # kube-apiserver closes idle connections after 90 s, some load balancers after 60 s


class Terminator:
    """A context manager: while it is entered, SIGTERM and SIGINT delete the TrainJob and end the process.

    It has a connection of its own, so that nothing the interrupted code was doing stands in the way. Enter it on the
    main thread, as only that one may set signal handlers.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        keep: bool = False,
        leave: Callable[[int], Any] = os._exit,
        keep_warm_seconds: float = _KEEP_WARM_SECONDS,
    ) -> None:
        """Nothing is guarded yet.

        Args:
            connection: how to reach the cluster.
            keep: leave the TrainJob alone and only end the process.
            leave: ends the process at once with an exit code. An orderly exit would flush a broken pipe and join
                threads.
            keep_warm_seconds: how often to use the connection, so that neither end closes it.
        """
        self._connection, self._keep, self._leave, self._pause = connection, keep, leave, keep_warm_seconds
        self._cluster: Cluster | None = None
        self._reference: JobReference | None = None
        self._pending: int | None = None
        self._former: dict[int, Any] = {}
        self._over = threading.Event()

    def __enter__(self) -> Terminator:
        """Handle signals from now on; until [guard][] names the TrainJob, a signal is only noted."""
        self._former = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Back to the former handlers."""
        self._over.set()
        for number, handler in self._former.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if self._cluster is not None:
            self._cluster.close()
        if self._pending is not None and self._reference is None:  # nothing was created: end as asked
            self._leave(128 + self._pending)

    def guard(self, reference: JobReference) -> None:
        """This TrainJob goes when a signal comes; at once when one has come meanwhile."""
        if not self._keep:
            self._cluster = Cluster(self._connection, patience=0.0)
            self._warm(reference)
            threading.Thread(target=self._keep_warm, args=(reference,), name="warm-connection", daemon=True).start()
        self._reference = reference
        if self._pending is not None:
            self._end(self._pending)

    def stand_down(self) -> None:
        """The TrainJob has ended by itself: a signal ends the process and leaves the finished TrainJob as it is."""
        self._keep = True

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._reference is None:  # being created: its uid comes with the answer that is on its way
            self._pending = number
        else:
            self._end(number)

    def _end(self, number: int) -> None:
        for known in _SIGNALS:
            signal.signal(known, signal.SIG_IGN)
        told = "was left alone"
        if not self._keep and self._cluster is not None and self._reference is not None:
            try:
                told = "was deleted" if cancel(self._cluster, self._reference) else "was gone"
            except TrainJobError as error:
                told = f"could not be deleted: {error}"
        with contextlib.suppress(OSError):
            os.write(2, f"{signal.Signals(number).name}: TrainJob {self._reference} {told}\n".encode())
        self._leave(128 + number)

    def _keep_warm(self, reference: JobReference) -> None:
        while not self._over.wait(self._pause):
            self._warm(reference)

    def _warm(self, reference: JobReference) -> None:
        if self._cluster is not None:
            with contextlib.suppress(TrainJobError):
                self._cluster.get_trainjob(reference.name, reference.namespace)
