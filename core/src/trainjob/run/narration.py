"""Telling a step's log what its TrainJob does: phases, log lines of all ranks, and progress now and then.

The same words from every engine; only the writing differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trainjob.cluster import LogChannel, LogLine
from trainjob.run.identity import JobReference
from trainjob.run.waiting import Listener
from trainjob.status import Progress, Verdict

_PERCENT, _LEAST_SECONDS, _MOST_SECONDS = 5.0, 1.0, 60.0


class Narrator:
    """Turns what a waiter is told into lines for a person."""

    def __init__(
        self,
        reference: JobReference,
        write: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        log: LogChannel | None = None,
    ) -> None:
        """Start with progress due.

        Args:
            reference: whose story it is.
            write: takes each line; called from several threads.
            clock: seconds, for tests.
            log: takes the lines of containers in place of `write`, and bounds how many of them wait to be written.
        """
        self._reference, self._write, self._clock, self._log_channel = reference, write, clock, log
        self._told_at, self._told_percent = -_MOST_SECONDS, -_PERCENT

    @property
    def listener(self) -> Listener:
        """To hand to `trainjob.run.wait`."""
        return Listener(on_phase=self.tell_phase, on_log=self.tell_log, on_progress=self.tell_progress)

    def tell_phase(self, verdict: Verdict) -> None:
        """The phase has changed."""
        self._write(f"TrainJob {self._reference}: {verdict}")
        if self._log_channel and verdict.phase.finished:
            self._log_channel.skip_at_once()

    def tell_log(self, line: LogLine) -> None:
        """A log line; not the frames of a progress bar, as they are told as progress."""
        if line.frame:
            return
        if self._log_channel:
            self._log_channel.put(line)
        else:
            self._write(str(line))

    def tell_progress(self, progress: Progress) -> None:
        """After each 5 % or, when that takes longer, once a minute; never twice a second; and at the end."""
        now, percent = self._clock(), progress.percent or 0.0
        passed = now - self._told_at
        due = percent - self._told_percent >= _PERCENT or passed >= _MOST_SECONDS
        if (due and passed >= _LEAST_SECONDS) or percent == 100.0:
            self._told_at, self._told_percent = now, percent
            self._write(f"TrainJob {self._reference}: {progress}")
