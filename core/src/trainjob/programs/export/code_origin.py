"""Project whose code trained a model: the record that the program `trainjob.programs.code` left in the workspace."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from trainjob.job_variables import CODE_RECORDS

__all__ = ["read_code_origin"]

_JOB_NAME = re.compile(r"[a-z0-9][-a-z0-9]{0,62}")
_SIZE_LIMIT = 1 << 16


def read_code_origin(output: Path, job: str) -> Mapping[str, str | bool]:
    """Return digest, commit and branch of a training's code; empty without a record.

    Args:
        output: folder of the run, in the workspace.
        job: name of the TrainJob that trained the model.
    """
    if not _JOB_NAME.fullmatch(job):
        return {}
    for folder in output.absolute().parents:
        try:
            with (folder / CODE_RECORDS / f"{job}.json").open("rb") as file:
                found = json.loads(file.read(_SIZE_LIMIT))
        except (OSError, ValueError):
            continue
        return {name: value for name, value in found.items() if isinstance(value, str | bool)}
    return {}
