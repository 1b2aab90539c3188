"""Programs that the demo starts in other Python environments."""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainjob_demo.errors import DemoError

__all__ = ["ensure_user_name", "run_process", "run_to_end"]


def ensure_user_name() -> None:
    """Set `LOGNAME` for all programs of the demo if the user of this process has no name.

    In containers with an arbitrary user ID, the user is not in `/etc/passwd`. Airflow 3.3 refuses to start then.
    """
    try:
        getpass.getuser()
    except (KeyError, OSError):  # OSError since Python 3.13
        os.environ["LOGNAME"] = f"uid-{os.getuid()}"


@contextlib.contextmanager
def run_process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in its own process group, and kill the group at the end of the block.

    Its temporary files are in a folder of its own, which is deleted then.

    Ctrl-C on the terminal reaches only this process, which then leaves the block.

    Args:
        command: program and arguments.
        log: file for the output; the command runs in its folder.
        environment: variables in addition to those of this process.

    Yields:
        The process.
    """
    # kfp 2.17 leaves folders in TMPDIR.
    with tempfile.TemporaryDirectory(prefix="trainjob-demo-", ignore_cleanup_errors=True) as temporary:
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                env={**os.environ, "TMPDIR": temporary, **(environment or {})},
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
