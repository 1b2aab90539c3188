"""Log of a step's TrainJob: phases, log lines of all ranks, and progress.

Airflow tasks, KFP steps and the command line write the same lines; only the destination differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trainjob.client import LogChannel, LogLine
from trainjob.lifecycle.identity import JobReference
from trainjob.lifecycle.job_logs import Listener
from trainjob.status import Progress, Verdict

_PERCENT_STEP, _MIN_SECONDS, _MAX_SECONDS = 5.0, 1.0, 60.0


class ProgressLog:
    """Writer of phases, container lines and progress of one TrainJob as text lines."""

    def __init__(
        self,
        reference: JobReference,
        write: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        *,
        log: LogChannel | None = None,
    ) -> None:
        """Create a log that writes the first progress immediately.

        Args:
            reference: the TrainJob.
            write: called with each line, from several threads.
            clock: returns monotonic seconds; for tests.
            log: receives the log lines of containers instead of `write`, and limits how many wait to be written.
        """
        self._reference, self._write, self._clock, self._log_channel = reference, write, clock, log
        self._logged_at, self._logged_percent, self._logged_text = -_MAX_SECONDS, -_PERCENT_STEP, ""

    @property
    def listener(self) -> Listener:
        """Listener for `trainjob.lifecycle.wait` that writes to this log."""
        return Listener(self.log_phase, self.log_line, self.log_progress, self.log_warning)

    def log_phase(self, verdict: Verdict) -> None:
        """Write the current phase of the TrainJob."""
        self._write(f"TrainJob {self._reference}: {verdict}")
        if self._log_channel and verdict.phase.finished:
            self._log_channel.stop_blocking()

    def log_warning(self, warning: str) -> None:
        """Write a warning about the end of the TrainJob."""
        self._write(f"TrainJob {self._reference}: warning: {warning}")

    def log_line(self, line: LogLine) -> None:
        """Write a container's log line, unless it was written already.

        Frames are left out; they appear as progress instead.
        """
        if line.frame or line.is_written:
            return
        if self._log_channel:
            self._log_channel.put(line)
        else:
            self._write(str(line))

    def log_progress(self, progress: Progress) -> None:
        """Write progress after each 5 % or each minute, whichever comes first.

        It is written at most once a second, except 100 %, which is always written. The same text is written once: a
        trainer may report further metrics of the last step.
        """
        now, percent, text = self._clock(), progress.percent or 0.0, str(progress)
        if text == self._logged_text:
            return
        passed = now - self._logged_at
        due = percent - self._logged_percent >= _PERCENT_STEP or passed >= _MAX_SECONDS
        if (due and passed >= _MIN_SECONDS) or percent == 100.0:
            self._logged_at, self._logged_percent, self._logged_text = now, percent, text
            self._write(f"TrainJob {self._reference}: {text}")
