"""Deletion of the TrainJob when the launcher receives SIGTERM or SIGINT.

The deletion comes first, because there may be no time for anything else.

Argo's emissary passes SIGTERM on, and ends the container with SIGKILL within a second. Its loop checks once a second
whether the command that it started has ended. KFP's own launcher is that command, and it ends at once (Argo 4.0
workflow/executor/emissary, KFP 2.17 backend/src/v2/component/launcher_v2.go). The request is therefore sent on a
connection that is already open, and before any line is written, because standard output may be a pipe without a reader.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from types import FrameType, TracebackType
from typing import Any, NoReturn

from trainjob.client import Connection
from trainjob.lifecycle import JobReference
from trainjob_kfp.deletion import DeletionRequest, DeletionThreads

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_KEEPALIVE_SECONDS = 30.0  # kube-apiserver closes idle connections after 90 s, some load balancers after 60 s
_MAX_CREATION_SECONDS = 1.0  # then `submit` continues, because its response is more reliable than repeated requests
_MAX_DELETION_SECONDS = 10.0


class Terminator:
    """A context manager in which SIGTERM and SIGINT delete the TrainJob and end the process.

    The effect of a signal depends on the state of the TrainJob:

    * No request was sent yet: the signal is recorded. The process ends before it creates a TrainJob, and it deletes a
      TrainJob that it adopts.
    * Its creation is in progress ([note_creation][]): requests to delete it by name are repeated until it exists. The
      name has the hash of run key and attempt, so that any TrainJob of this name belongs to this step. During that time
      the process creates nothing. A creation that was not sent yet is not sent before an emissary's SIGKILL.
    * It is known ([set_reference][]): it is deleted unless it has ended.
    * It has ended ([mark_finished][]): it is retained as a record of what happened, and for a later try to adopt.
    * Another attempt follows it ([begin_submission][]): as before the first request.
    * The last attempt has ended, and the next one has to wait ([begin_pause][]): the process ends at once.

    Enter it on the main thread, because only the main thread may set signal handlers.
    """

    def __init__(self, connection: Connection, *, keepalive_seconds: float = _KEEPALIVE_SECONDS) -> None:
        """Create the context manager without a TrainJob.

        Args:
            connection: how to reach the cluster.
            keepalive_seconds: interval at which open connections are used, so that they are not closed as idle.
        """
        self._connection, self._keepalive_seconds = connection, keepalive_seconds
        self._should_keep: Callable[[], bool] = lambda: False
        self._do_last_work: Callable[[], None] = lambda: None
        self._deletion_threads: DeletionThreads | None = None
        self._name = self._namespace = ""
        self._reference: JobReference | None = None
        self._find_known: Callable[[], Mapping[str, Any] | None] = lambda: None
        self._pending_signal: int | None = None
        self._previous_handlers: dict[int, Any] = {}
        self._has_ended = self._is_paused = False

    def __enter__(self) -> Terminator:
        """Set the signal handlers, and open connections in the background."""
        self._deletion_threads = DeletionThreads(self._connection, self._keepalive_seconds)
        self._previous_handlers = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Restore the former signal handlers, and end the process if a signal is pending."""
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if self._deletion_threads is not None:
            self._deletion_threads.close()
        if self._pending_signal is not None:  # nothing was created: end as the signal requires
            self._exit("no TrainJob was created")

    def set_keep_condition(self, should_keep: Callable[[], bool]) -> None:
        """Set the function that is called on a signal, and returns whether to keep the TrainJob.

        If it returns True, the TrainJob continues, and the signal ends only the process.
        """
        self._should_keep = should_keep

    def set_last_work(self, do_last_work: Callable[[], None]) -> None:
        """Set the function to call before the process ends while the TrainJob continues."""
        self._do_last_work = do_last_work

    def begin_submission(self) -> None:
        """Remove the record of the last attempt's TrainJob, which has ended and is retained."""
        self._name = self._namespace = ""
        self._reference, self._has_ended = None, False

    def begin_pause(self) -> None:
        """Let a signal end the process at once, until [pause][] has ended.

        The last attempt's TrainJob has ended and is retained.
        """
        self.begin_submission()
        self._is_paused = True

    def pause(self, seconds: float) -> None:
        """Wait before the next attempt."""
        # A signal just before a blocking call sets only a flag of Python, which is read after the call. The byte in
        # this pipe ends the call.
        received, writable = os.pipe()
        os.set_blocking(writable, False)
        previous = signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        try:
            if self._pending_signal is not None:
                self._exit("no further TrainJob was created")
            select.select([received], [], [], seconds)
        finally:
            signal.set_wakeup_fd(previous)
            os.close(received)
            os.close(writable)
        self._is_paused = False

    def note_creation(self, name: str, namespace: str) -> None:
        """Record that a TrainJob of this name may exist from now on.

        If a signal was received before, this method ends the process instead.
        """
        self._name, self._namespace, self._reference = name, namespace, None
        if self._pending_signal is not None:
            self._exit("no TrainJob was created")

    def set_reference(self, reference: JobReference, find_known: Callable[[], Mapping[str, Any] | None]) -> None:
        """Record the TrainJob to delete on a signal; delete it at once if a signal is pending.

        Args:
            reference: the TrainJob.
            find_known: see [trainjob_kfp.deletion.DeletionRequest][]. It must not wait for a lock, because the signal
                may have interrupted the lock's owner.
        """
        self._name, self._namespace = reference.name, reference.namespace
        self._reference, self._find_known = reference, find_known
        if self._pending_signal is not None:
            self._delete_and_exit()

    def mark_finished(self) -> None:
        """Record that the TrainJob has ended by itself.

        A signal then ends the process and retains the finished TrainJob.
        """
        self._has_ended = True

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._pending_signal = number
        if self._is_paused:
            self._exit("no further TrainJob was created")
        if self._name:
            for known in _SIGNALS:
                signal.signal(known, signal.SIG_IGN)
            self._delete_and_exit()

    def _delete_and_exit(self) -> None:
        """Delete the TrainJob unless it is to continue, and end the process.

        This method returns only if the creation of the TrainJob is in progress, after 1 s.
        """
        if self._has_ended or self._should_keep() or self._deletion_threads is None:
            if not self._has_ended:
                self._do_last_work()
            self._exit(f"TrainJob {self._namespace}/{self._name} was retained")
        request = DeletionRequest(
            self._name, self._namespace, self._reference, self._exit_with_result, self._find_known
        )
        self._deletion_threads.submit(request)
        if self._reference is None:
            time.sleep(_MAX_CREATION_SECONDS)
            return
        time.sleep(_MAX_DELETION_SECONDS)
        self._exit_with_result(f"could not be deleted within {_MAX_DELETION_SECONDS:g} s")

    def _exit_with_result(self, result: str) -> None:
        self._exit(f"TrainJob {self._namespace}/{self._name} {result}")

    def _exit(self, message: str) -> NoReturn:
        """End the process at once with a line on standard error.

        An orderly exit would flush a broken pipe and join threads.
        """
        number = self._pending_signal or signal.SIGTERM
        with contextlib.suppress(OSError):
            os.write(2, f"{signal.Signals(number).name}: {message}\n".encode())
        os._exit(128 + number)
