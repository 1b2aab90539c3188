"""Copy of a training's output to standard output and to those who read it."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence

from trainjob.frameworks.supervision.container_output import ContainerOutput

__all__ = ["OutputCopier"]

_CHUNK = 1 << 16
# Seconds after the training's end in which a process that it left behind may be silent, and may write at all. A
# container without this program would end at once.
_MAX_SILENCE, _MAX_LEFT_BEHIND = 5.0, 60.0


class OutputCopier:
    """Thread that copies a training's output until its end."""

    def __init__(self, source: int, output: ContainerOutput, readers: Sequence[Callable[[bytes], None]]) -> None:
        """Start to copy.

        Args:
            source: file descriptor of the training's output, which the copier closes.
            output: the container's output.
            readers: functions that get each chunk, too; they do not wait.
        """
        self._source, self._output, self._readers = source, output, readers
        self._ended, self._end = os.pipe()  # the second is closed after the training's end
        self._thread = threading.Thread(target=self._copy, name="output", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until the output of a training that has ended is copied."""
        os.close(self._end)
        self._thread.join()
        os.close(self._ended)

    def _copy(self) -> None:
        deadline = None
        try:
            while True:
                if self._wait() and deadline is None:
                    deadline = time.monotonic() + _MAX_LEFT_BEHIND
                if deadline is not None and (time.monotonic() > deadline or not self._is_ready(_MAX_SILENCE)):
                    break
                if not (chunk := os.read(self._source, _CHUNK)):
                    break
                self._output.write(chunk)
                for put in self._readers:
                    put(chunk)
        except OSError:
            pass  # standard output is closed: the training's next write fails, as it does without this program
        finally:
            os.close(self._source)
            self._output.end()

    def _wait(self) -> bool:
        """Wait for output or the training's end, and return whether the training has ended."""
        return self._ended in select.select([self._source, self._ended], [], [])[0]

    def _is_ready(self, seconds: float) -> bool:
        return bool(select.select([self._source], [], [], seconds)[0])
