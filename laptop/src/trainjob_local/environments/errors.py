"""Errors about the environments."""

from __future__ import annotations

from pathlib import Path

from trainjob.credentials import redact_credentials
from trainjob.errors import TrainJobError

__all__ = ["EnvironmentInUse", "EnvironmentNotCreated"]


class EnvironmentNotCreated(TrainJobError):
    """An environment that could not be created.

    Cause: The package index cannot be reached, the disk is full, or no suitable Python is installed.

    Remedy: Follow the hint of the message, or name an existing environment: `--environment NAME=DIR`.

    Attributes:
        name: name of the environment.
    """

    def __init__(self, name: str, reason: str, *, hint: str) -> None:
        super().__init__(f"the environment {name!r} could not be created: {redact_credentials(reason)}", hint=hint)
        self.name = name


class EnvironmentInUse(TrainJobError):
    """An environment that cannot be deleted: containers run in it, or it is being created.

    Cause: `trainjob local clean` found a cluster or a demo that uses the environment.

    Remedy: Stop the cluster: `trainjob local down`.

    Attributes:
        path: folder of the environment.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"the environment {path} is in use by a running laptop cluster, or is being created",
            hint="stop the cluster: trainjob local down",
        )
        self.path = path
