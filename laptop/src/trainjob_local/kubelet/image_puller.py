"""The replacement of image pulls: environments that are created when the first container needs them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from trainjob_local.environments import EnvironmentLock, environment_folder, use_environment
from trainjob_local.kubelet.processes import ContainerProcess, ProcessManager

__all__ = ["ImagePuller", "PullFailed"]

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.2  # seconds between checks whether a pod that waits has to end


class PullFailed(Exception):
    """An environment that could not be created; the text is for users."""


class ImagePuller:
    """Creator of the environments that replace images, each once at a time.

    The cluster uses an environment from its first container until it stops. Until then, the environment cannot be
    deleted.

    Args:
        processes: manager of the node's processes, which end with the kubelet.
    """

    def __init__(self, processes: ProcessManager) -> None:
        self._processes = processes
        self._lock = threading.Lock()
        self._creations: dict[Path, _Creation] = {}
        self._used: set[Path] = set()
        self._uses = contextlib.ExitStack()

    def find(self, lock: EnvironmentLock) -> Path | None:
        """Return the folder of a ready environment, which is in use from now on, or None."""
        folder = environment_folder(lock)
        with self._lock:
            if folder in self._used:
                return folder
            with contextlib.ExitStack() as stack:
                if not stack.enter_context(use_environment(folder)):
                    return None
                self._uses.enter_context(stack.pop_all())
            self._used.add(folder)
        return folder

    def create(self, lock: EnvironmentLock, stop: threading.Event) -> None:
        """Create the environment of a lock, or wait for its creation.

        Containers that need the same environment share one creation. It is ended when none of them waits any more.

        Args:
            lock: the packages of the environment.
            stop: set when the container's pod has to end; the method then returns early.

        Raises:
            PullFailed: the environment could not be created.
        """
        folder = environment_folder(lock)
        with self._lock:
            creation = self._creations.get(folder)
            if creation is None:
                creation = self._creations[folder] = _Creation(lock, self._processes)
            creation.waiting += 1
        try:
            while not stop.is_set() and not creation.ended.wait(_POLL_SECONDS):
                pass
        finally:
            with self._lock:
                creation.waiting -= 1
                if creation.ended.is_set() or not creation.waiting:
                    self._creations.pop(folder, None)
                    creation.cancel()
        if creation.problem and not stop.is_set():
            raise PullFailed(creation.problem)

    def close(self) -> None:
        """Allow the deletion of the environments again."""
        with self._lock:
            self._uses.close()


class _Creation:
    """A process that creates an environment.

    Attributes:
        waiting: number of containers that wait for the environment.
        ended: set when the process has ended.
        problem: reason why the environment could not be created; empty if it was created.
    """

    def __init__(self, lock: EnvironmentLock, processes: ProcessManager) -> None:
        self.waiting, self.problem = 0, ""
        self.ended = threading.Event()
        self._lock, self._processes = lock, processes
        command = [sys.executable, "-m", "trainjob_local.environments", lock.to_json()]
        self._process = processes.start(command, os.environ, ".")
        threading.Thread(target=self._follow, args=(self._process,), daemon=True).start()

    def cancel(self) -> None:
        """End the process with its children, if it still runs."""
        if not self.ended.is_set():
            self._process.signal(signal.SIGTERM)

    def _follow(self, process: ContainerProcess) -> None:
        held, last = b"", ""
        while output := process.read():
            *lines, held = (held + output).split(b"\n")
            for line in lines:
                last = line.decode(errors="replace")
                _LOG.info("environment %s: %s", self._lock.name, last)
        if process.wait():
            self.problem = _parse_problem(last, self._lock.name)
        self._processes.report_end(process)
        self.ended.set()


def _parse_problem(line: str, name: str) -> str:
    with contextlib.suppress(ValueError):
        return " ".join(str(json.loads(line)).split())  # messages of Kubernetes are one line
    return f"the environment {name!r} could not be created: {line}"  # the program was killed, or has a bug
