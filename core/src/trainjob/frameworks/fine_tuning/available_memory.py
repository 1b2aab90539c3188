"""Memory that this process may still use: the least of the node's and the container's."""

from __future__ import annotations

import contextlib
from pathlib import Path

__all__ = ["measure_available_memory"]

_GROUP, _NODE = Path("/sys/fs/cgroup"), Path("/proc/meminfo")


def measure_available_memory(group: Path = _GROUP, node: Path = _NODE) -> int:
    """Return the available memory in bytes.

    The kernel takes a container's cached files back before it ends a process, so they count as available. Source:
    the kernel's documentation of control groups, version 2: `memory.max`, `memory.current` and `memory.stat`.

    Args:
        group: folder of the container's control group.
        node: the kernel's file about the node's memory.
    """
    lines = node.read_text().splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    with contextlib.suppress(OSError, ValueError, LookupError):  # no limit (`max`), or version 1
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        cached = int(fields["active_file"]) + int(fields["inactive_file"])
        available = min(available, limit - used + cached)
    return available
