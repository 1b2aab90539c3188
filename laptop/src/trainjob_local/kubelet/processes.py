"""Start, signals and end of container processes; none of them outlives its kubelet."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, cast

from trainjob_local.kubelet import watchdog

__all__ = ["ContainerProcess", "ProcessManager"]

FirstProcess = Callable[[int], "int | None"]
"""Function that returns the ID of process 1 of an isolated container on this machine.

Its argument is the ID of the process as which the container was started.
"""


class ContainerProcess:
    """A running container: a process group of its own, with its output on one pipe.

    Attributes:
        pid: ID of the process and of its group.
    """

    def __init__(self, popen: subprocess.Popen[bytes], mark: str, *, first_process: FirstProcess | None = None) -> None:
        self._popen, self._mark, self._first_process = popen, mark, first_process
        self._output = cast("IO[bytes]", popen.stdout)
        self.pid = popen.pid
        threading.Thread(target=self._kill_leftovers, name=f"container-{popen.pid}", daemon=True).start()

    def read(self) -> bytes:
        """Wait for output and return it; empty at the end of the output."""
        return os.read(self._output.fileno(), 1 << 16)

    def _kill_leftovers(self) -> None:
        """Wait for the first process, then kill the processes that it leaves behind.

        A container ends with its first process. Killing the others closes the pipe too. The mark in their environment
        identifies also processes that left the group, such as the workers of a killed torchrun.
        """
        self._popen.wait()
        watchdog.kill_processes({self.pid}, self._mark, name=watchdog.CONTAINER_MARK_VARIABLE)

    def wait(self) -> int:
        """Wait for the end of the process and return its exit code.

        As with a container runtime, the exit code after a signal is 128 + signal number.
        """
        code = self._popen.wait()
        self._output.close()
        return 128 - code if code < 0 else code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group.

        In an isolated container only process 1 receives it, as with container runtimes. SIGKILL goes to the whole
        group.
        """
        # unshare does not report that its child was killed. If unshare itself is killed, all processes inside end too.
        first = None if number == signal.SIGKILL else self.first_process_id()
        with contextlib.suppress(OSError):  # the process has ended
            if first is None:
                os.killpg(self.pid, number)
            else:
                os.kill(first, number)

    def first_process_id(self) -> int | None:
        """Return the ID of process 1 of an isolated container.

        Returns:
            The process ID; None if the container is not isolated, or if it has no process 1 at this time.
        """
        return self._first_process(self.pid) if self._first_process else None


class ProcessManager:
    """Factory of the container processes of one kubelet, with a watchdog process.

    The watchdog (`watchdog.py`) ends the container processes if the kubelet dies.

    Args:
        remove: folder to remove when the kubelet ends, even if it is killed; None to remove nothing.
    """

    def __init__(self, *, remove: Path | None = None) -> None:
        self._mark = uuid.uuid4().hex
        self._lock = threading.Lock()
        arguments = [
            sys.executable,
            "-I",
            "-S",
            watchdog.__file__,
            self._mark,
            *(["--remove", str(remove)] if remove else []),
        ]
        self._watchdog = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._watchdog_input = cast("IO[bytes]", self._watchdog.stdin)

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | Path,
        *,
        first_process: FirstProcess | None = None,
    ) -> ContainerProcess:
        """Start a container's process.

        Args:
            argv: the command.
            env: its complete environment.
            cwd: its working folder.
            first_process: function that returns the ID of process 1 of an isolated container; None if it is not
                isolated.

        Raises:
            OSError: the command cannot be started.
        """
        mark = uuid.uuid4().hex
        popen = subprocess.Popen(
            list(argv),
            env={**env, watchdog.NODE_MARK_VARIABLE: self._mark, watchdog.CONTAINER_MARK_VARIABLE: mark},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._send_to_watchdog(f"+{popen.pid}")
        return ContainerProcess(popen, mark, first_process=first_process)

    def report_end(self, process: ContainerProcess) -> None:
        """Report to the watchdog process that a container has ended."""
        self._send_to_watchdog(f"-{process.pid}")

    def close(self) -> None:
        """Stop the watchdog process, which kills the remaining processes and removes the folder."""
        with self._lock, contextlib.suppress(OSError):
            self._watchdog_input.close()
        self._watchdog.wait()

    def _send_to_watchdog(self, line: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # closed on stop; the watchdog kills by the mark
            self._watchdog_input.write(f"{line}\n".encode())
            self._watchdog_input.flush()
