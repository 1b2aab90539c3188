"""What a kubelet needs of a means that gives containers mounts and process IDs of their own.

The laptop cluster has none: its containers see this machine, and paths in their commands are rewritten. The tests'
control planes have one, for programs that insist on fixed paths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Isolation", "Mount"]


@dataclass(frozen=True)
class Mount:
    """A local folder or file and the absolute path where a container sees it."""

    local: Path
    path: str
    read_only: bool = False


class Isolation(Protocol):
    """Means that isolates containers."""

    def command(
        self, argv: Sequence[str], *, folder: Path, mounts: Sequence[Mount], cwd: str, programs: Sequence[str]
    ) -> list[str]:
        """Return the command that runs `argv` as process 1 of a container of its own.

        Args:
            argv: the command.
            folder: an existing, empty folder for the means.
            mounts: what the container sees at which path.
            cwd: working folder; empty for `/`.
            programs: folders of this machine that a mount must not hide.
        """
        ...

    def first_process(self, pid: int) -> int | None:
        """Return this machine's ID of process 1 of the container that was started as `pid`; None after its end."""
        ...
