"""The program `uv`, which creates environments and installs packages."""

from __future__ import annotations

import collections
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from uv import find_uv_bin

from trainjob_local.environments.pip_settings import read_pip_settings

__all__ = ["Uv", "UvFailed", "uv_environment"]

_TAIL_LINES = 15
# The first two name other environments. The backend would apply to packages with hashes, which its builds do not have.
_NOT_INHERITED = ("VIRTUAL_ENV", "CONDA_PREFIX", "UV_TORCH_BACKEND")


class UvFailed(Exception):
    """A command of uv that failed; the text has the command and the last lines of its output."""


class Uv:
    """Runner of uv's commands for one environment.

    Args:
        cwd: working folder, which must not be in a project, because uv reads its settings.
        report: function that receives each line of the output; with None, the output goes to this process's standard
            error, with progress bars on a terminal.
        inherited: file descriptor of the lock, which uv inherits; so the lock is held until uv has ended, even if this
            process is killed.
    """

    def __init__(self, cwd: Path, report: Callable[[str], None] | None, inherited: int) -> None:
        self._cwd, self._report, self._inherited = cwd, report, inherited

    def run(self, *arguments: str | Path) -> None:
        """Run a command.

        Raises:
            UvFailed: the command failed.
        """
        command = [find_uv_bin(), *map(str, arguments)]
        tail: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)
        output = subprocess.PIPE if self._report else None
        with subprocess.Popen(
            command,
            env=uv_environment(os.environ),
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if self._report else None,
            pass_fds=(self._inherited,),
            text=True,
            errors="replace",
        ) as process:
            try:
                for line in process.stdout or ():
                    tail.append(line.rstrip())
                    if self._report and tail[-1]:
                        self._report(tail[-1])
                process.wait()
            except BaseException:  # Ctrl-C: the environment is about to be removed
                process.kill()
                raise
        if process.returncode:
            shown = ":\n" + "\n".join(tail) if self._report else "; its output is above"
            raise UvFailed(f"`{shlex.join(['uv', *command[1:]])}` failed{shown}")

    def succeeds(self, *arguments: str | Path, seconds: float, variables: Mapping[str, str]) -> bool:
        """Run a command quietly, and return whether it succeeded.

        Args:
            arguments: arguments of uv.
            seconds: maximum duration; a longer command is ended and did not succeed.
            variables: additional environment variables.
        """
        command = [find_uv_bin(), *map(str, arguments)]
        environment = {**uv_environment(os.environ), **variables}
        try:
            done = subprocess.run(
                command, env=environment, cwd=self._cwd, capture_output=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0


def uv_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of uv's commands.

    uv ignores the settings of pip. They are translated here, so that uv uses the same package index.

    Args:
        variables: environment variables of this process.
    """
    inherited = {name: value for name, value in variables.items() if name not in _NOT_INHERITED}
    found = {**read_pip_settings(variables), **inherited}
    if "UV_FIND_LINKS" in found:  # uv runs in another folder
        links = filter(None, found["UV_FIND_LINKS"].split(","))
        found["UV_FIND_LINKS"] = ",".join(one if "://" in one else str(Path(one).absolute()) for one in links)
    return found
