"""The interface of a mechanism that gives containers their own mounts and process IDs.

The laptop cluster has no such mechanism: its containers see this machine, and paths in their commands are rewritten.
The tests' control planes have it, for programs that need fixed paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Isolation", "Mount"]


@dataclass(frozen=True)
class Mount:
    """A local folder or file and the absolute path at which a container sees it."""

    local: Path
    path: str
    read_only: bool = False


class Isolation(Protocol):
    """Mechanism that isolates containers."""

    def command(
        self, argv: Sequence[str], *, folder: Path, mounts: Sequence[Mount], cwd: str, programs: Sequence[str]
    ) -> list[str]:
        """Return the command that runs `argv` as process 1 of its own container.

        Args:
            argv: the command.
            folder: an existing, empty folder that the mechanism may use.
            mounts: local folders and files, with their paths in the container.
            cwd: working folder; empty for `/`.
            programs: folders of this machine that a mount must not hide.
        """
        ...

    def first_process(self, pid: int) -> int | None:
        """Return this machine's ID of process 1 of the container that was started as `pid`.

        Returns:
            The process ID; None after the end of the process.
        """
        ...
