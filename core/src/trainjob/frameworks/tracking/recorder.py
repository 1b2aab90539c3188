"""Recorder: the process that sends a training's metrics to the tracker.

It reads lines of JSON on standard input: the tracked run, then each step with its values, and at last the training's
exit code. While the tracker fails, the values wait in memory, and the recorder tries again until the training has ended.
The log reports the first failure only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import IO, Any

from trainjob.errors import redact_credentials
from trainjob.frameworks.tracking.settings import TrackedRun
from trainjob.frameworks.tracking.trackers import StepValues, Tracker, create_tracker

__all__ = ["Inbox", "main", "record"]

_MAX_WAITING = 50_000  # steps; about 50 MB
_MAX_BATCH = 500  # steps in one request; MLflow allows 1000 values
_COLLECT_SECONDS = 1.0  # in which the steps of one request are collected
_FIRST_DELAY, _MAX_DELAY = 1.0, 30.0  # seconds between two tries
_MAX_ERROR_LENGTH = 300


class Inbox:
    """Steps that wait to be sent, which another thread adds."""

    def __init__(self) -> None:
        """Create an empty inbox."""
        self._changed = threading.Condition()
        self._steps: deque[StepValues] = deque()
        self.lost = 0
        self.exit_code: int | None = None

    def fill(self, lines: Iterable[str]) -> None:
        """Add the steps of all lines, then the training's exit code; without one, the training was killed."""
        exit_code = 128 + signal.SIGKILL
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            if "exit_code" in message:
                exit_code = message["exit_code"]
                break
            with self._changed:
                self._steps.append(StepValues(message["step"], message["time"], message["values"]))
                if len(self._steps) > _MAX_WAITING:
                    self._steps.popleft()
                    self.lost += 1
                self._changed.notify()
        with self._changed:
            self.exit_code = exit_code
            self._changed.notify()

    def wait(self) -> None:
        """Wait for a step or the end of the training, then a second more for further steps."""
        with self._changed:
            self._changed.wait_for(lambda: self._steps or self.exit_code is not None)
        self.wait_for_end(_COLLECT_SECONDS)

    def wait_for_end(self, seconds: float) -> None:
        """Wait for the end of the training, for at most some seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.exit_code is not None, seconds)

    def __len__(self) -> int:
        return len(self._steps)

    def first(self) -> Sequence[StepValues]:
        """Return the steps for the next request, oldest first."""
        with self._changed:
            return [self._steps[index] for index in range(min(len(self._steps), _MAX_BATCH))]

    def remove(self, steps: Sequence[StepValues]) -> None:
        """Remove steps that were sent, unless they were lost meanwhile."""
        sent = set(map(id, steps))
        with self._changed:
            while self._steps and id(self._steps[0]) in sent:
                self._steps.popleft()


def record(tracker: Tracker, inbox: Inbox, output: IO[str]) -> None:
    """Send all steps to a tracker, and end its run after the training.

    Args:
        tracker: the tracker.
        inbox: the steps; another thread fills it.
        output: receives lines for the log.
    """
    is_open, has_failed, delay = False, False, _FIRST_DELAY
    while True:
        try:
            if not is_open:
                print(f"tracking: {tracker.open()}", file=output, flush=True)
                is_open = True
            inbox.wait()
            while steps := inbox.first():
                tracker.record(steps)
                inbox.remove(steps)
                delay = _FIRST_DELAY
            if inbox.exit_code is not None:
                tracker.close(inbox.exit_code)
                break
        except Exception as error:  # each library has its own exceptions
            if not has_failed:
                print(_describe_failure(tracker, error), file=output, flush=True)
            has_failed = True
            _pause(inbox, delay)
            delay = min(2 * delay, _MAX_DELAY)
    if inbox.lost:
        print(f"tracking: {inbox.lost} steps were lost while the tracker failed", file=output, flush=True)


def _pause(inbox: Inbox, seconds: float) -> None:
    """Wait before the next try; after the end of the training, only a second."""
    if inbox.exit_code is None:
        inbox.wait_for_end(seconds)
    else:
        threading.Event().wait(_FIRST_DELAY)


def _describe_failure(tracker: Tracker, error: Exception) -> str:
    text = redact_credentials(" ".join(f"{type(error).__name__}: {error}".split()))[:_MAX_ERROR_LENGTH]
    return f"tracking: {tracker.title} failed, and is tried again while the training continues: {text}"


def main() -> int:
    """Record the run on standard input, and return an exit code."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints does not belong in the training's log
    run, inbox = TrackedRun.from_json(sys.stdin.readline()), Inbox()

    def report_rest(_number: int, _frame: FrameType | None) -> None:
        os.write(output.fileno(), f"tracking: {len(inbox) + inbox.lost} steps were not sent\n".encode())
        os._exit(0)

    signal.signal(signal.SIGTERM, report_rest)
    threading.Thread(target=inbox.fill, args=(sys.stdin,), name="steps", daemon=True).start()
    record(create_tracker(run), inbox, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
