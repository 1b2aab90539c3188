"""Detection of a Python module that a container's environment lacks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from uv import find_uv_bin

__all__ = ["MissingModule"]

_ERROR = re.compile(rb"ModuleNotFoundError: No module named '([\w.]+)'")
_HELD_BYTES = 200  # an error may be split between two blocks of output


class MissingModule:
    """Reader of a container's output that remembers the last module that Python did not find."""

    def __init__(self) -> None:
        self._name, self._held = "", b""

    def read(self, output: bytes) -> None:
        """Read the next block of output."""
        text = self._held + output
        for found in _ERROR.finditer(text):
            self._name = found[1].decode()
        self._held = text[-_HELD_BYTES:]

    def advice(self, environment: Path | None) -> str:
        """Return a line about the missing module for the container's log, or an empty text.

        Args:
            environment: folder of the environment in which the container ran.
        """
        if not self._name or environment is None:
            return ""
        command = shlex.join([find_uv_bin(), "pip", "install", "--python", str(environment)])
        return (
            f"laptop cluster: this container ran in the environment {environment}, which has no module "
            f"{self._name!r}; add the package that contains it: {command} PACKAGE\n"
        )
