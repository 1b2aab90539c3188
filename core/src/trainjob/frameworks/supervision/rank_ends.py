"""Ends of a pod's ranks by signals, which are in the log before their launcher has noticed them."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from trainjob.frameworks.supervision.processes import read_end_signal
from trainjob.heartbeats import BEGUN_NAME, Heartbeat, read_heartbeats
from trainjob.status.watchdog import RankEnd

__all__ = ["RankEnds"]


class RankEnds:
    """Thread that writes which rank was ended by which signal, and after which step.

    The kernel reports the end at once. It must not wait for the launcher: the ranks of other pods lose their
    connections in the same moment, and when one of these pods has failed, this one is deleted.
    """

    def __init__(self, folder: Path, print_line: Callable[[str], None]) -> None:
        """Start to wait for the ends of ranks.

        Args:
            folder: folder of the heartbeats, with its named pipe.
            print_line: writes a line to the log.
        """
        self._folder, self._print = folder, print_line
        self._begun = os.open(folder / BEGUN_NAME, os.O_RDWR | os.O_NONBLOCK)
        self._stopped, self._stop = os.pipe()
        self._known, self._is_expected = set[int](), False  # process IDs
        self._thread = threading.Thread(target=self._watch, name="rank ends", daemon=True)
        self._thread.start()

    def expect(self) -> None:
        """Write no more ends, because this program itself ends the training now."""
        self._is_expected = True

    def finish(self) -> None:
        """End the thread after the end of the training, whose last ends are written before."""
        os.close(self._stop)
        self._thread.join()
        os.close(self._begun)
        os.close(self._stopped)

    def _watch(self) -> None:
        poll, ranks = select.poll(), dict[int, Heartbeat]()  # by the file descriptor of the process
        for each in (self._begun, self._stopped):
            poll.register(each, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._begun in ready:
                with contextlib.suppress(OSError):
                    os.read(self._begun, select.PIPE_BUF)
            for rank, descriptor in self._open_new():
                ranks[descriptor] = rank
                poll.register(descriptor, select.POLLIN)
            for descriptor in ready & ranks.keys():
                poll.unregister(descriptor)
                self._report(ranks.pop(descriptor))
                os.close(descriptor)
            if self._stopped in ready:
                break
        for descriptor, rank in ranks.items():
            if select.select([descriptor], [], [], 0)[0]:
                self._report(rank)
            os.close(descriptor)

    def _open_new(self) -> Iterator[tuple[Heartbeat, int]]:
        """Yield ranks that have begun, each with a file descriptor of its process."""
        for rank in read_heartbeats(self._folder):
            if rank.pid not in self._known:
                self._known.add(rank.pid)
                try:
                    yield rank, os.pidfd_open(rank.pid)
                except ProcessLookupError:
                    self._report(rank)
                except OSError:
                    pass  # this kernel has no such descriptors; the launcher reports the end

    def _report(self, begun: Heartbeat) -> None:
        """Write the end of a rank.

        One that ends by itself, also with an error, has removed its heartbeat.
        """
        number = read_end_signal(begun.pid)
        for rank in read_heartbeats(self._folder):
            if rank.pid == begun.pid and rank.rank is not None and not self._is_expected:
                self._print(RankEnd(rank.rank, number, rank.step).to_line())
