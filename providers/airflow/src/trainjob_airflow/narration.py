"""Telling a task's log what its TrainJob does: phases, log lines of all ranks, and progress now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainjob.cluster import LogLine
    from trainjob.run import JobReference, Listener
    from trainjob.status import Progress, Verdict

_PROGRESS_SECONDS = 2.0


def narrator(
    reference: JobReference, log: Any, run: Callable[[Callable[[], None]], None] = lambda tell: tell()
) -> Listener:
    """A listener that writes to a logger.

    Args:
        reference: whose story it is.
        log: anything with `info`.
        run: runs each logging call; a trigger hands them over to its event loop, as Airflow tells triggers' log lines
            apart by the loop's context.
    """
    from trainjob.run import Listener

    told = [0.0]

    def say(text: str, *arguments: Any) -> None:
        run(lambda: log.info(text, *arguments))

    def on_phase(verdict: Verdict) -> None:
        say("TrainJob %s: %s", reference, verdict)

    def on_log(line: LogLine) -> None:
        if not line.frame:
            say("%s", line)

    def on_progress(progress: Progress) -> None:
        now, over = time.monotonic(), progress.total is not None and progress.step >= progress.total
        if over or now - told[0] >= _PROGRESS_SECONDS:
            told[0] = now
            say("TrainJob %s: %s", reference, progress)

    return Listener(on_phase=on_phase, on_log=on_log, on_progress=on_progress)
