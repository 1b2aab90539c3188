"""The text that announces a download before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainjob_local.environments import EnvironmentLock

__all__ = ["format_announcement"]

# MB of disk for each environment, on Linux for x86_64 with the CUDA builds of torch, November 2026.
_DISK_MB = {"initializer": 60, "torchtune": 5100, "trl": 5100, "airflow": 310, "kfp": 70}


def format_announcement(missing: Sequence[EnvironmentLock], folder: Path) -> str:
    """Return which environments will be created, where, and what it costs.

    Args:
        missing: locks of the environments to create.
        folder: folder of all environments.
    """
    gigabytes = sum(_DISK_MB[lock.name] for lock in missing) / 1000
    return "\n".join(
        [
            f"These Python environments are created in {folder}, once:",
            *(f"  {lock.name:<12} {lock.announcement}" for lock in missing),
            f"They need at most {gigabytes:.1f} GB of disk. To delete them: trainjob local clean",
        ]
    )
