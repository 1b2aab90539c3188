"""Recorder: the process that sends a training's metrics to the tracker.

It reads lines of JSON on standard input: the tracked run, then each step with its values, and at last the training's
end. While the tracker fails, the values wait in memory, and the recorder tries again until the training has ended.
The log reports the first failure, and at the end what was not sent.
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

from trainjob.frameworks.tracking.settings import TrackedRun, TrainingEnd
from trainjob.frameworks.tracking.trackers import StepValues, Tracker, create_tracker, describe_error, is_access_denied

__all__ = ["Inbox", "Recorder", "main"]

_MAX_WAITING = 50_000  # steps; about 50 MB
_MAX_BATCH = 500  # steps in one request; MLflow allows 1000 values
_COLLECT_SECONDS = 1.0  # in which the steps of one request are collected
_FIRST_DELAY, _MAX_DELAY = 1.0, 30.0  # seconds between two tries


class Inbox:
    """Steps that wait to be sent, which another thread adds.

    Attributes:
        received: number of steps that were added.
        lost: number of the oldest steps that had to be removed, because too many waited.
        end: end of the training; None while it runs.
    """

    def __init__(self) -> None:
        """Create an empty inbox."""
        self._changed = threading.Condition()
        self._steps: deque[StepValues] = deque()
        self.received, self.lost = 0, 0
        self.end: TrainingEnd | None = None

    def fill(self, lines: Iterable[str]) -> None:
        """Add the steps of all lines, then the training's end.

        If the lines contain no end, the training was killed.
        """
        end = TrainingEnd(128 + signal.SIGKILL)
        for line in lines:
            if not line.endswith("\n"):
                break  # the sender was killed while it wrote
            message: dict[str, Any] = json.loads(line)
            if "exit_code" in message:
                end = TrainingEnd(**message)
                break
            self._add(StepValues(**message))
        with self._changed:
            self.end = end
            self._changed.notify()

    def _add(self, step: StepValues) -> None:
        with self._changed:
            self._steps.append(step)
            self.received += 1
            if len(self._steps) > _MAX_WAITING:
                self._steps.popleft()
                self.lost += 1
            self._changed.notify()

    def wait(self) -> None:
        """Wait for a step or the end of the training, then a second more for further steps."""
        with self._changed:
            self._changed.wait_for(lambda: self._steps or self.end is not None)
        self.wait_for_end(_COLLECT_SECONDS)

    def wait_for_end(self, seconds: float) -> None:
        """Wait for the end of the training, for at most some seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self.end is not None, seconds)

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


class Recorder:
    """Sender of a training's steps to a tracker."""

    def __init__(self, tracker: Tracker, inbox: Inbox, output: IO[str]) -> None:
        """Create a recorder that has sent nothing.

        Args:
            tracker: the tracker.
            inbox: the steps; another thread fills it.
            output: receives lines for the log.
        """
        self._tracker, self._inbox, self._output = tracker, inbox, output
        self._failure = ""  # the last one
        self._is_closed = False

    def run(self) -> None:
        """Send all steps, and end the tracked run after the training."""
        is_open, delay = False, _FIRST_DELAY
        while not self._is_closed:
            try:
                if not is_open:
                    for line in self._tracker.open():
                        self._print(line)
                    is_open = True
                self._send_steps()
                delay = _FIRST_DELAY
            except Exception as error:  # noqa: BLE001 - each library has its own exceptions
                self._handle_failure(error)
                if self._inbox.end is not None and is_access_denied(error):
                    break  # the pod does not wait for another login
                _pause(self._inbox, delay)
                delay = min(2 * delay, _MAX_DELAY)
        if self._inbox.lost or not self._is_closed:
            self._print(self.describe_unsent())

    def describe_unsent(self) -> str:
        """Return what was not sent, and why."""
        unsent, received = len(self._inbox) + self._inbox.lost, self._inbox.received
        what = f"{unsent} of {received} steps" if unsent else "the end of the run"
        verb = "were" if unsent else "was"
        return f"{what} {verb} not sent to {self._tracker.title}: {self._failure or 'it did not respond in time'}"

    def _send_steps(self) -> None:
        """Wait for steps and send them; after the training, end the run."""
        self._inbox.wait()
        end = self._inbox.end  # no step follows it
        while steps := self._inbox.first():
            self._tracker.record(steps)
            self._inbox.remove(steps)
        if end is not None:
            self._tracker.close(end)
            self._is_closed = True

    def _handle_failure(self, error: Exception) -> None:
        text = describe_error(error)
        if not self._failure:
            self._print(f"{self._tracker.title} failed, and is tried again while the training continues: {text}")
        self._failure = text

    def _print(self, text: str) -> None:
        print(f"tracking: {text}", file=self._output, flush=True)


def _pause(inbox: Inbox, seconds: float) -> None:
    """Wait before the next try; after the end of the training, only a second."""
    if inbox.end is None:
        inbox.wait_for_end(seconds)
    else:
        threading.Event().wait(_FIRST_DELAY)


def main() -> int:
    """Record the run on standard input, and return an exit code."""
    # What a library prints does not belong in the training's log, and its processes must not hold the pipes open.
    source, output = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    run, inbox = TrackedRun.from_json(source.readline()), Inbox()
    recorder = Recorder(create_tracker(run), inbox, output)

    def report_unsent(_number: int, _frame: FrameType | None) -> None:
        os.write(output.fileno(), f"tracking: {recorder.describe_unsent()}\n".encode())
        os._exit(0)

    signal.signal(signal.SIGTERM, report_unsent)
    threading.Thread(target=inbox.fill, args=(source,), name="steps", daemon=True).start()
    recorder.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
