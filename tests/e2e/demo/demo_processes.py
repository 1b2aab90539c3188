"""Processes that a demo started, found by a mark in their environment."""

from __future__ import annotations

from pathlib import Path


def find_processes(mark: str, folder: Path) -> list[str]:
    """Return the command lines of the processes with this mark or this folder.

    The mark is in their environment, the folder in their command.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:  # the process has just ended
            continue
        if mark.encode() in environment or str(folder).encode() in command:
            found.append(command.decode(errors="replace"))
    return found
