"""Log of a deferred task, which its trigger writes at a rate that the triggerer sustains.

A separate thread writes the lines. Each line passes through a socket to the triggerer's supervisor, which writes the
file. In Airflow 3.3.2 (`airflow/jobs/triggerer_job_runner.py`) the supervisor reads 4,096 bytes at a time. Between two
reads it makes the database queries of all triggers. A full socket blocks its writer for up to a second, and with it
every line of the other triggers.
"""

from __future__ import annotations

import contextvars
import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainjob.threads import run_on_thread
from trainjob_airflow.version_compat import conf

if TYPE_CHECKING:
    from trainjob.client import LogChannel, LogWriter, SkippedLines, WrittenTimes

# Measured with Airflow 3.3.2 on two busy cores: the supervisor reads 300 to 430 kB/s with PostgreSQL on the same
# machine, and 600 to 900 kB/s with SQLite. About 300 bytes of each line are added by Airflow (task, run, time). A
# quarter of the lower rate leaves the supervisor time for its other work. If the supervisor reads more slowly, each
# write takes longer, and the writer slows down. The burst is half of what the socket holds.
DEFAULT_BYTES_PER_SECOND = 100_000
"""Default of the setting `[trainjob] log_bytes_per_second`."""
_BURST, _LINE_OVERHEAD = 32_000, 300
_LAST_LINE_SECONDS = 2.0  # how long to wait for a line that is being written, because the socket is full


def create_line_writer(write: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that writes a line of a TrainJob to the task's log with `write`.

    Control characters are shown as text, because `airflow tasks test` and `dag.test()` print the log on a terminal.
    Colors stay, because Airflow's log page renders them (Airflow 3.3.2).
    """
    return functools.partial(_write_escaped, write)


def _write_escaped(write: Callable[[str], None], line: str) -> None:
    from trainjob.control_characters import escape_control_characters

    write(escape_control_characters(line, keep_colors=True))


@functools.cache
def _shared_writer() -> LogWriter:
    """Return the writer that all triggers of this process share.

    They share it because they share the supervisor.
    """
    from trainjob.client import LogWriter, RateLimit

    return LogWriter(RateLimit(_read_bytes_per_second(), _BURST, _LINE_OVERHEAD))


def _read_bytes_per_second() -> int:
    """Return the setting `[trainjob] log_bytes_per_second`.

    A wrong value is logged as a warning, and the default applies, because an error would fail every deferred task.
    """
    text = conf.get("trainjob", "log_bytes_per_second", fallback=str(DEFAULT_BYTES_PER_SECOND))
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    logging.getLogger(__name__).warning(
        "[trainjob] log_bytes_per_second: %r is not allowed; it must be a whole number of at least 1. The default %d "
        "applies",
        text,
        DEFAULT_BYTES_PER_SECOND,
    )
    return DEFAULT_BYTES_PER_SECOND


class TriggererLog:
    """Log of the deferred task that the current trigger waits for.

    It is an asynchronous context manager. When the context ends, it first writes the lines that are still queued, also
    after an error. It does not do so after a cancellation, because Airflow then waits for the trigger.
    """

    def __init__(
        self, write: Callable[[str], None], written_times: WrittenTimes, on_skipped: Callable[[SkippedLines], None]
    ) -> None:
        """Open the log.

        Args:
            write: writes a line to the task's log if it is called in the trigger's context (`contextvars`); control
                characters are shown as text.
            written_times: record of the lines that were written; complete when the context has ended.
            on_skipped: called with each gap of skipped lines; it must not raise.
        """
        self._context, self._write = contextvars.copy_context(), create_line_writer(write)
        self._channel = _shared_writer().open(self._write_line, written_times.record, on_skipped)

    async def __aenter__(self) -> LogChannel:
        """Return the channel of the task's lines."""
        return self._channel

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the queued lines, and close the log."""
        try:
            if kind is None or issubclass(kind, Exception):
                await self._channel.finish_async()
        finally:
            self._channel.close()
            if not self._channel.wait_until_written(0.0):
                await run_on_thread(self._channel.wait_until_written, _LAST_LINE_SECONDS)

    def _write_line(self, line: str) -> None:
        self._context.run(self._write, line)
