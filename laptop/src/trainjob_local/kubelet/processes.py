"""Starts container processes so that none outlives its kubelet, and signals them."""

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

from trainjob_local.kubelet import undertaker

__all__ = ["ContainerProcess", "Processes"]

FirstProcess = Callable[[int], "int | None"]
"""Finds this machine's ID of process 1 of an isolated container that was started as a process."""


class ContainerProcess:
    """One running container: a process group of its own, output on one pipe.

    Attributes:
        pid: id of the process and of its group.
    """

    def __init__(self, popen: subprocess.Popen[bytes], mark: str, *, first_process: FirstProcess | None = None) -> None:
        self._popen, self._mark, self._first_process = popen, mark, first_process
        self._output = cast("IO[bytes]", popen.stdout)
        self.pid = popen.pid
        threading.Thread(target=self._bury, name=f"container-{popen.pid}", daemon=True).start()

    def read(self) -> bytes:
        """Waits for output and returns what there is; empty at its end."""
        return os.read(self._output.fileno(), 1 << 16)

    def _bury(self) -> None:
        """Kills what the first process leaves behind, as a container ends with it; that closes the pipe too.

        By their mark also processes that left the group, such as the workers of a killed torchrun.
        """
        self._popen.wait()
        undertaker.end({self.pid}, self._mark, name=undertaker.CONTAINER_MARK)

    def wait(self) -> int:
        """Waits for the end; the exit code as a container runtime tells it (128 + signal number)."""
        code = self._popen.wait()
        self._output.close()
        return 128 - code if code < 0 else code

    def signal(self, number: signal.Signals) -> None:
        """Signals the whole group; of an isolated container only process 1, as container runtimes do."""
        # Of a killed child unshare does not tell that it was killed; killed itself, it takes all of them with it.
        first = None if number == signal.SIGKILL else self.inside()
        with contextlib.suppress(OSError):  # it has ended
            if first is None:
                os.killpg(self.pid, number)
            else:
                os.kill(first, number)

    def inside(self) -> int | None:
        """Id of an isolated container's process 1; None for others, and while there is none."""
        return self._first_process(self.pid) if self._first_process else None


class Processes:
    """Starts the container processes of one kubelet, watched by an undertaker.

    Args:
        remove: folder that goes with the kubelet, also when it is killed; None keeps everything.
    """

    def __init__(self, *, remove: Path | None = None) -> None:
        self._mark = uuid.uuid4().hex
        self._lock = threading.Lock()
        arguments = [
            sys.executable,
            "-I",
            "-S",
            undertaker.__file__,
            self._mark,
            *(["--remove", str(remove)] if remove else []),
        ]
        self._undertaker = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._orders = cast("IO[bytes]", self._undertaker.stdin)

    def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str | Path,
        *,
        first_process: FirstProcess | None = None,
    ) -> ContainerProcess:
        """Starts a container's process.

        Args:
            argv: the command.
            env: its whole environment.
            cwd: its working folder.
            first_process: finds process 1 of an isolated container; None if it is not isolated.

        Raises:
            OSError: the command cannot be started.
        """
        mark = uuid.uuid4().hex
        popen = subprocess.Popen(
            list(argv),
            env={**env, undertaker.MARK: self._mark, undertaker.CONTAINER_MARK: mark},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._tell(f"+{popen.pid}")
        return ContainerProcess(popen, mark, first_process=first_process)

    def ended(self, process: ContainerProcess) -> None:
        """Strikes a container that has ended off the list."""
        self._tell(f"-{process.pid}")

    def close(self) -> None:
        """Dismisses the undertaker; it ends whatever still lives and removes the folder it was given."""
        with self._lock, contextlib.suppress(OSError):
            self._orders.close()
        self._undertaker.wait()

    def _tell(self, line: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):  # closed: we are stopping, and it kills by the mark
            self._orders.write(f"{line}\n".encode())
            self._orders.flush()
