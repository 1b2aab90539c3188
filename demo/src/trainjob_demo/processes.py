"""Programs that the demo starts in other Python environments."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainjob_demo.errors import DemoError

__all__ = ["run_process", "run_to_end"]


@contextlib.contextmanager
def run_process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in its own process group, and kill the group at the end of the block.

    Ctrl-C on the terminal reaches only this process, which then leaves the block.

    Args:
        command: program and arguments.
        log: file for the output; the command runs in its folder.
        environment: variables in addition to those of this process.

    Yields:
        The process.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_to_end(name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a command to its end.

    Args:
        name: what the command is, for the error.
        command: program and arguments.
        log: file for the output; the command runs in its folder.
        environment: variables in addition to those of this process.

    Raises:
        DemoError: the exit code is not 0; the message has the last lines of the log.
    """
    with run_process(command, log, environment) as process:
        code = process.wait()
    if code:
        raise DemoError.from_program(name, code, log)
