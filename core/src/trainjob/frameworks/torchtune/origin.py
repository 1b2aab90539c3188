"""Origin of a model that TorchTune trained, in its own record; see [trainjob.programs.export.origin][]."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["RECORD_FILE", "read_origin"]

RECORD_FILE = "torchtune_config.yaml"
"""File with all arguments of a run, which TorchTune writes before the first step (torchtune 0.6.1)."""
_ARGUMENT = re.compile(r"^trainjob_(trained_by|workflow_run): (\S+)$", re.MULTILINE)


def read_origin(record: Path) -> dict[str, str]:
    """Return the values of the arguments that `trainjob.frameworks.torchtune.framework` adds."""
    found = _ARGUMENT.findall(record.read_text(encoding="utf-8", errors="replace"))
    return {name: value for name, value in found if value != "null"}
