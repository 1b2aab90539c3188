"""Processes of a run: started, observed and ended as one group."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.abc import InspectLoader

__all__ = ["CommandRun", "Run", "Template", "TemplateUnavailable", "end_run"]

_TERMINATION_SECONDS = 2.0
_POLL_SECONDS = 0.02
_TEMPLATE = "trainjob.programs.code_loop.template"


class TemplateUnavailable(Exception):
    """The template process can't run the training, for example because the image has no torch."""


class Run(Protocol):
    """A run of the training.

    Attributes:
        group: ID of its process group.
    """

    group: int

    def poll(self) -> int | None:
        """Return the exit code, 128 + N after the signal N; None while the run lasts."""


def end_run(run: Run) -> None:
    """End the processes of a run: SIGTERM, and SIGKILL after two seconds."""
    _signal_group(run.group, signal.SIGTERM)
    deadline = time.monotonic() + _TERMINATION_SECONDS
    while run.poll() is None and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    kill_leftovers(run)
    while run.poll() is None:
        time.sleep(_POLL_SECONDS)


def kill_leftovers(run: Run) -> None:
    """Kill the processes of a run, such as those that an ended run has left."""
    _signal_group(run.group, signal.SIGKILL)


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS refuses a group of zombies
        os.killpg(group, number)


class CommandRun:
    """A run that is a command.

    Raises:
        OSError: the command cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
        self.group = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code; see [Run][]."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code


class Template:
    """The process that has imported torch; see `trainjob.programs.code_loop.template`.

    Attributes:
        processes: number of processes of each run on this node.

    Raises:
        TemplateUnavailable: torch cannot be imported, or the number of processes is not understood.
    """

    def __init__(self, variables: Mapping[str, str], processes: str) -> None:
        requests, self._requests = os.pipe()
        self._replies, replies = os.pipe()
        command = [sys.executable, "-c", _read_source(), str(requests), str(replies), processes]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, pass_fds=(requests, replies), env=dict(variables), start_new_session=True
        )
        os.close(requests)
        os.close(replies)
        self._received = b""
        first = self.read_reply()
        if "processes" not in first:
            raise TemplateUnavailable(first.get("unavailable") or f"it ended with {self.end()}")
        self.processes = first["processes"]

    def start_run(self, request: Mapping[str, object]) -> TemplateRun:
        """Start a run; the one before has ended.

        Raises:
            TemplateUnavailable: the process has ended, for example because the memory was exhausted.
        """
        try:
            os.write(self._requests, json.dumps(request).encode() + b"\n")
            return TemplateRun(self, self.read_reply()["pid"])
        except (BrokenPipeError, KeyError):
            raise TemplateUnavailable(f"it ended with {self.end()}") from None

    def has_reply(self) -> bool:
        """Return whether [read_reply][] returns at once."""
        return b"\n" in self._received or bool(select.select([self._replies], [], [], 0)[0])

    def read_reply(self) -> dict:  # type: ignore[type-arg]
        """Return the next reply; an empty one if the process has ended."""
        while b"\n" not in self._received:
            data = os.read(self._replies, 1 << 16)
            if not data:
                return {}
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return cast("dict", json.loads(line))  # type: ignore[type-arg]

    def end(self) -> int:
        """End the process, and return its exit code."""
        os.close(self._requests)
        os.close(self._replies)
        self._process.kill()
        return self._process.wait()


class TemplateRun:
    """A run whose processes a template process has forked."""

    def __init__(self, template: Template, group: int) -> None:
        self._template, self.group = template, group
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code; see [Run][]."""
        if self._code is None and self._template.has_reply():
            self._code = self._template.read_reply().get("code", 128 + signal.SIGKILL)
        return self._code


def _read_source() -> str:
    """Return the text of the template's file, which may be in a zip file."""
    spec = importlib.util.find_spec(_TEMPLATE)
    source = spec and cast("InspectLoader", spec.loader).get_source(_TEMPLATE)
    if not source:
        raise ModuleNotFoundError(_TEMPLATE)
    return source
