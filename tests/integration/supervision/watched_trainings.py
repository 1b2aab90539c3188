"""Stub trainings under the packed program with a watchdog, as they run in the pods of one TrainJob."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.frameworks.supervision.watchdog import WatchdogSettings
from trainjob.manifest.supervision import supervision_program
from trainjob.status.watchdog import WatchdogReport, describe_hang

__all__ = ["Watched", "python", "run_python", "run_watched", "start_watched"]

_STUB = Path(__file__).with_name("stub_training.py")
_SECONDS = 300


@dataclass(frozen=True)
class Watched:
    """Exit codes and outputs of the pods of a training."""

    codes: list[int]
    outputs: list[str]

    @property
    def reports(self) -> list[WatchdogReport]:
        """All reports of all pods."""
        return [
            report for text in self.outputs for line in text.splitlines() if (report := WatchdogReport.from_line(line))
        ]

    @property
    def alarms(self) -> list[WatchdogReport]:
        """The reports of a hang."""
        return [report for report in self.reports if report.is_alarm]

    @property
    def verdict(self) -> str:
        """Text that the waiter shows."""
        return describe_hang({report.node: report for report in self.reports}.values())


class _Barrier:
    """Server that answers when all ranks wait; when one has ended, it answers no more."""

    def __init__(self, ranks: int) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._expected, self._ranks = ranks, list[socket.socket]()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # a rank has ended, or the test
            while len(self._ranks) < self._expected:
                self._ranks.append(self._server.accept()[0])
            while all(rank.recv(1) for rank in self._ranks):
                for rank in self._ranks:
                    rank.sendall(b"x")

    def close(self) -> None:
        for each in (self._server, *self._ranks):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in (self._server, *self._ranks):
            each.close()


def start_watched(command: list[str], settings: WatchdogSettings, node: int = 0, **env: str) -> subprocess.Popen[str]:
    """Start the packed program with a command."""
    return subprocess.Popen(
        [sys.executable, *supervision_program()[1:], "--watchdog", settings.to_json(), *command],
        env={**os.environ, "PET_NODE_RANK": str(node), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def python(source: str) -> list[str]:
    """Return the command of a training of one process that is this Python source.

    It may call `wait(seconds)` and the functions of `trainjob.heartbeats`.
    """
    beginning = "import os, time\nfrom trainjob.heartbeats import *\ndef wait(seconds):\n    time.sleep(seconds)\n"
    return [sys.executable, "-c", beginning + source]


def run_python(source: str, **settings: Any) -> Watched:
    """Run a training of one process to its end."""
    pod = start_watched(python(source), WatchdogSettings(**{"action": "report", **settings}))
    output = pod.communicate(timeout=_SECONDS)[0]
    return Watched([pod.returncode], [output])


def run_watched(
    fault: str = "", rank: int = 1, *, nodes: int = 1, per_node: int = 2, steps: int = 20, **fields: Any
) -> Watched:
    """Run a stub training to its end.

    Args:
        fault: fault of the stub; empty for none.
        rank: the rank that has it.
        nodes: number of nodes.
        per_node: ranks of each node.
        steps: steps of the training.
        **fields: fields of the watchdog's settings.
    """
    settings = WatchdogSettings(**{"action": "fail", "silence": 2.0, **fields})
    size = nodes * per_node
    with contextlib.closing(_Barrier(size)) as barrier:
        pods = []
        for node in range(nodes):
            words = [barrier.port, node * per_node, per_node, size, steps, fault, rank]
            command = [sys.executable, str(_STUB), *map(str, words)]
            pods.append(start_watched(command, settings, node, SILENCE=str(settings.silence)))
        outputs = _wait_for_end(pods)
    return Watched([pod.returncode for pod in pods], outputs)


def _wait_for_end(pods: list[subprocess.Popen[str]]) -> list[str]:
    """Return the outputs of the pods.

    When one has failed, the others are ended, as Kubernetes does it.
    """

    def read(pod: subprocess.Popen[str]) -> str:
        output = pod.communicate(timeout=_SECONDS)[0]
        for other in pods if pod.returncode else ():
            other.terminate()
        return output

    with ThreadPoolExecutor(len(pods)) as executor:
        return list(executor.map(read, pods))
