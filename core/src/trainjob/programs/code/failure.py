"""Errors of the code program, which ends with their message."""

from __future__ import annotations

__all__ = ["INSTALLATION_FAILED", "CodeFailure", "PackageFailure"]

# The same text as in trainjob.errors, which is too large for a container's command.
INSTALLATION_FAILED = "packages could not be installed"


class CodeFailure(Exception):
    """The project cannot be unpacked, or its command cannot be started."""


class PackageFailure(CodeFailure):
    """The packages of the project cannot be installed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{INSTALLATION_FAILED}: {reason}")
