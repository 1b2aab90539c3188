"""Process that records a training's metrics, as the training's parent process sees it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import IO, Any, cast

from trainjob.credentials import redact_credentials
from trainjob.frameworks.packed_code import find_packed_code
from trainjob.frameworks.tracking.metric_reader import MetricReader
from trainjob.frameworks.tracking.settings import TrackedRun, TrainingEnd

__all__ = ["PYTHON_VARIABLE", "RecorderProcess"]

PYTHON_VARIABLE = "TRAINJOB_TRACKING_PYTHON"
"""Environment variable: Python interpreter with the tracker's library, if it is not the training's."""
_MAX_CHUNKS = 256  # of at most 64 KiB each, which wait to be read
_LAST_WORDS = 3.0  # seconds in which the recorder reports what it could not send
_MAX_ERROR_LENGTH = 300


class RecorderProcess:
    """The recorder; none of its failures reaches the caller."""

    def __init__(self, run: TrackedRun, print_line: Callable[[str], None]) -> None:
        """Start the recorder.

        Args:
            run: the tracked run.
            print_line: writes a line to the log; called from other threads.
        """
        self._print_line = print_line
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_MAX_CHUNKS)
        self._left_out = 0  # bytes of output that were not read for metrics
        self._sent = 0  # steps that the recorder got
        self._is_stopped = False
        self._process: subprocess.Popen[bytes] | None = None
        try:
            process, self._errors = _start()
            self._process = process
        except OSError as error:
            print_line(f"tracking: the recorder cannot be started, and the training continues without it: {error}")
            return
        self._threads = [
            threading.Thread(target=self._send, args=(process, run), name="metrics", daemon=True),
            threading.Thread(target=self._copy_lines, args=(process,), name="recorder-output", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def put(self, chunk: bytes) -> None:
        """Give a chunk of the training's output to the recorder, without waiting."""
        if self._process is None:
            return
        try:
            self._chunks.put_nowait(chunk)
        except queue.Full:
            self._left_out += len(chunk)

    def finish(self, end: TrainingEnd, timeout: float) -> None:
        """End the tracked run.

        Args:
            end: end of the training.
            timeout: seconds in which the recorder must have sent the last values.
        """
        process = self._process
        if process is None:
            return
        deadline = time.monotonic() + timeout
        self._end = end
        with contextlib.suppress(queue.Full):
            self._chunks.put(None, timeout=timeout)
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._stop(process, timeout)
        for thread in self._threads:
            thread.join(_LAST_WORDS)
        if self._left_out:
            self._print_line(f"tracking: {self._left_out} bytes of output came too fast to be read for metrics")

    def _stop(self, process: subprocess.Popen[bytes], timeout: float) -> None:
        self._is_stopped = True
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_LAST_WORDS)
        if process.poll() != 0:  # it reported nothing
            when = f"{timeout:.0f} s after the end of the training"
            self._print_line(f"tracking: the recorder was killed {when}; {self._sent} steps may not have been sent")
        with contextlib.suppress(OSError):  # the process and all that it started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _send(self, process: subprocess.Popen[bytes], run: TrackedRun) -> None:
        """Send the run, its metrics and its end to the recorder, until the recorder ends."""
        channel = cast("IO[bytes]", process.stdin)
        reader = MetricReader()
        try:
            channel.write(f"{run.to_json()}\n".encode())
            channel.flush()
            while chunk := self._chunks.get():
                self._send_steps(channel, reader.feed(chunk))
            self._send_steps(channel, reader.finish())
            channel.write(json.dumps(asdict(self._end)).encode() + b"\n")
        except OSError:
            pass  # the recorder has ended, which `_copy_lines` reports
        except Exception as error:  # noqa: BLE001 - the training must not notice
            self._print_line(f"tracking: the metrics of the training's output cannot be read: {error!r}")
        finally:
            with contextlib.suppress(OSError):
                channel.close()

    def _send_steps(self, channel: IO[bytes], steps: Iterator[tuple[int, dict[str, Any]]]) -> None:
        now = round(time.time(), 3)
        for step, values in steps:
            channel.write(json.dumps({"step": step, "time": now, "values": values}).encode() + b"\n")
            self._sent += 1
        channel.flush()

    def _copy_lines(self, process: subprocess.Popen[bytes]) -> None:
        for line in cast("IO[bytes]", process.stdout):
            self._print_line(line.decode(errors="replace").rstrip("\n"))
        if (code := process.wait()) and not self._is_stopped:
            self._print_line(f"tracking: the recorder ended with exit code {code}: {self._read_last_error()}")

    def _read_last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return redact_credentials(lines[-1] if lines else "no message")[:_MAX_ERROR_LENGTH]


def _start() -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """Return the recorder's process and the file with its errors."""
    packed = find_packed_code()
    path = os.pathsep.join([*packed, *filter(None, [os.environ.get("PYTHONPATH")])])
    errors = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 - open as long as the recorder runs
    try:
        process = subprocess.Popen(
            [os.environ.get(PYTHON_VARIABLE) or sys.executable, "-m", "trainjob.frameworks.tracking.recorder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": path} if packed else None,
            start_new_session=True,
        )
    except OSError:
        errors.close()
        raise
    return process, errors
