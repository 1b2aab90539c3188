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
import time
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, NoReturn

from trainjob.client import Connection
from trainjob.lifecycle import JobReference
from trainjob_kfp.deletion import Deleters, Order

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_KEEP_WARM_SECONDS = 30.0  # kube-apiserver closes idle connections after 90 s, some load balancers after 60 s
_CREATION_SECONDS = 1.0  # then whoever creates the TrainJob goes on: the answer says more than asking blindly
_LONGEST_SECONDS = 10.0


class Terminator:
    """A context manager: while it is entered, SIGTERM and SIGINT delete the TrainJob and end the process.

    What a signal does depends on how far the TrainJob is:

    * nothing is sent yet: the signal is noted. The process ends before it creates anything, and deletes what it adopts.
    * its creation is on its way ([about_to_create][]): it is deleted by its name, again and again until there is one to
      delete. The name holds the hash of run key and attempt, so whatever has it is this step's. Meanwhile the process
      creates nothing: a request that was not sent yet is not sent within the time in which an emissary kills.
    * it is known ([guard][]): it is deleted by its uid.
    * it has ended ([stand_down][]): it stays, as a record of what happened, and for a later try to adopt.

    Enter it on the main thread, as only that one may set signal handlers.
    """

    def __init__(self, connection: Connection, *, keep_warm_seconds: float = _KEEP_WARM_SECONDS) -> None:
        """Nothing is guarded yet.

        Args:
            connection: how to reach the cluster.
            keep_warm_seconds: how often to use the open connections, so that neither end closes them.
        """
        self._connection, self._keep_warm_seconds = connection, keep_warm_seconds
        self._keep: Callable[[], bool] = lambda: False
        self._deleters: Deleters | None = None
        self._name = self._namespace = ""
        self._uid: str | None = None
        self._pending: int | None = None
        self._former: dict[int, Any] = {}
        self._may_have_ended = False

    def __enter__(self) -> Terminator:
        """Handle signals from now on, and open connections in the background."""
        self._deleters = Deleters(self._connection, self._keep_warm_seconds)
        self._former = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Back to the former handlers."""
        for number, handler in self._former.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if self._deleters is not None:
            self._deleters.close()
        if self._pending is not None:  # nothing was created: end as asked
            self._leave("nothing was created")

    def keep_when(self, keep: Callable[[], bool]) -> None:
        """When a signal has come, this is asked whether to leave the TrainJob alone and only end the process."""
        self._keep = keep

    def about_to_create(self, name: str, namespace: str) -> None:
        """From now on there may be a TrainJob of this name; ends the process instead when a signal has come."""
        self._name, self._namespace, self._uid = name, namespace, None
        if self._pending is not None:
            self._leave("nothing was created")

    def guard(self, reference: JobReference) -> None:
        """This TrainJob goes when a signal comes; at once when one has come meanwhile.

        One that was adopted may have ended: until [still_works][] is called, that is looked up first.
        """
        self._may_have_ended = reference.adopted
        self._name, self._namespace, self._uid = reference.name, reference.namespace, reference.uid
        if self._pending is not None:
            self._end()

    def still_works(self) -> None:
        """The TrainJob was just seen, and has not ended."""
        self._may_have_ended = False

    def stand_down(self) -> None:
        """The TrainJob has ended by itself: a signal ends the process and leaves the finished TrainJob as it is."""
        self._keep = lambda: True

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._pending = number
        if self._name:
            for known in _SIGNALS:
                signal.signal(known, signal.SIG_IGN)
            self._end()

    def _end(self) -> None:
        """Returns only while the TrainJob's creation is on its way, and only after a while."""
        if self._keep() or self._deleters is None:
            self._leave(f"TrainJob {self._namespace}/{self._name} was left alone")
        order = Order(self._name, self._namespace, self._uid, self._leave_job, look_first=self._may_have_ended)
        self._deleters.give(order)
        if self._uid is None:
            time.sleep(_CREATION_SECONDS)
            return
        time.sleep(_LONGEST_SECONDS)
        self._leave_job(f"could not be deleted within {_LONGEST_SECONDS:g} s")

    def _leave_job(self, told: str) -> None:
        self._leave(f"TrainJob {self._namespace}/{self._name} {told}")

    def _leave(self, told: str) -> NoReturn:
        """End the process at once: an orderly exit would flush a broken pipe and join threads."""
        number = self._pending or signal.SIGTERM
        with contextlib.suppress(OSError):
            os.write(2, f"{signal.Signals(number).name}: {told}\n".encode())
        os._exit(128 + number)
