"""The log of a deferred task, as its trigger writes it: from a thread, and at a rate that the triggerer can sustain.

A line of a trigger goes through a socket to the triggerer's supervisor, which writes the file. In Airflow 3.3.2
(`airflow/jobs/triggerer_job_runner.py`) the supervisor reads 4,096 bytes at a time, and makes its database queries for
all triggers in between. A full socket blocks its writer for up to a second, and each line of another trigger as well.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainjob.client import LogChannel, LogWriter

# Measured with Airflow 3.3.2 on two busy cores: the supervisor takes 300 to 430 kB/s with PostgreSQL on the same
# machine, 600 to 900 kB/s with SQLite. Some 300 bytes of each line are Airflow's own (task, run, time). A quarter of
# the lower rate leaves it time for its other work. Where it takes less, writes become slow, and the writer slows down.
# The burst is half of what the socket holds.
_BYTES_PER_SECOND, _BURST, _LINE_OVERHEAD = 100_000, 32_000, 300


@functools.cache
def _writer() -> LogWriter:
    """Return the writer that all triggers of this process share, because they share the supervisor."""
    from trainjob.client import LogWriter, RateLimit

    return LogWriter(RateLimit(_BYTES_PER_SECOND, _BURST, _LINE_OVERHEAD))


@contextlib.asynccontextmanager
async def triggerer_log(write: Callable[[str], None]) -> AsyncIterator[LogChannel]:
    """Open the log of the deferred task that the current trigger waits for.

    What is queued is written before it is left, but not after a cancellation: then Airflow waits for the trigger.

    Args:
        write: writes a line to the task's log if it is called in the trigger's context (`contextvars`).
    """
    context = contextvars.copy_context()
    channel = _writer().open(lambda text: context.run(write, text))
    try:
        yield channel
    except Exception:
        await channel.finish_async()
        raise
    else:
        await channel.finish_async()
    finally:
        channel.close()
