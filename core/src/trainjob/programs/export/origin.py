"""Origin of a model in a workspace: the TrainJobs that wrote it, and their workflow run.

Several workflow runs may use one workspace, one after the other or at once. A step that reads the model of another run
would publish or judge a model that its own run has not trained. Each framework's own record has the origin:
`trainjob_run.json`, TorchTune's `torchtune_config.yaml`, and the `manifest.json` of an export.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from trainjob.errors import ExportError
from trainjob.job_variables import NAME_VARIABLE, RUN_VARIABLE

__all__ = [
    "TRAINED_BY",
    "Origin",
    "OriginRule",
    "check_origin",
    "own_origin",
    "read_origin",
]

TRAINED_BY = "trained_by"
"""Key of the records in JSON: the TrainJob that trained the model."""
_EXPORTED_BY, _WORKFLOW_RUN = "exported_by", "workflow_run"
_JSON_FILES = ("trainjob_run.json", "manifest.json")
_TORCHTUNE_FILE = "torchtune_config.yaml"
_TORCHTUNE_KEYS = {f"trainjob_{key}": key for key in (TRAINED_BY, _WORKFLOW_RUN)}
_SIZE_LIMIT = 16 << 20
_PLAIN_TEXT = re.compile(r"[\w./~%-]{1,4096}", re.ASCII)


@dataclass(frozen=True)
class Origin:
    """Origin of a model.

    Attributes:
        jobs: names of the TrainJobs that trained and exported it; empty if it has no record of them.
        workflow_run: their workflow run; empty if it is not known.
    """

    jobs: tuple[str, ...] = ()
    workflow_run: str = ""


@dataclass(frozen=True)
class OriginRule:
    """The origins that a step accepts.

    Attributes:
        after_jobs: names of TrainJobs, one of which must have written the model; empty for all of the own run.
        workflow_run: the own workflow run; empty if there is none, and then every run counts as the own one.
        any_run: whether every origin is accepted.
    """

    after_jobs: tuple[str, ...] = ()
    workflow_run: str = ""
    any_run: bool = False

    @classmethod
    def from_environment(cls, after_jobs: tuple[str, ...], *, any_run: bool) -> OriginRule:
        """Return the rule of a step in this container."""
        return cls(after_jobs, os.environ.get(RUN_VARIABLE, ""), any_run)


def own_origin() -> dict[str, str]:
    """Return the record of an export in this container; empty outside a TrainJob."""
    own = {_EXPORTED_BY: os.environ.get(NAME_VARIABLE, ""), _WORKFLOW_RUN: os.environ.get(RUN_VARIABLE, "")}
    return {key: text for key, text in own.items() if text}


def read_origin(folder: Path) -> Origin:
    """Return the origin that the newest record in a folder names; an empty one without a record."""
    names = (*_JSON_FILES, _TORCHTUNE_FILE)
    records = [path for name in names if (path := folder / name).is_file() and not path.is_symlink()]
    if not records:
        return Origin()
    newest = max(records, key=lambda path: path.stat().st_mtime)
    found = _read_torchtune_config(newest) if newest.name == _TORCHTUNE_FILE else _read_json(newest)
    texts = {key: text for key, text in found.items() if isinstance(text, str) and _PLAIN_TEXT.fullmatch(text)}
    jobs = [texts[key] for key in (TRAINED_BY, _EXPORTED_BY) if key in texts]
    return Origin(tuple(jobs), texts.get(_WORKFLOW_RUN, "") if jobs else "")


def check_origin(folder: Path, rule: OriginRule) -> str:
    """Refuse a model of another origin than the rule accepts.

    Args:
        folder: folder of the checkpoint or of an export.
        rule: the accepted origins.

    Returns:
        A note for the log if the model has no record, as one of an earlier version or of the user's own program;
        empty otherwise.

    Raises:
        ExportError: the model has another origin.
    """
    if rule.any_run or not (rule.after_jobs or rule.workflow_run):
        return ""
    origin = read_origin(folder)
    if not origin.jobs:
        return f"{folder} has no record of the TrainJob that wrote it, so its origin is not checked"
    if rule.after_jobs:
        if not set(rule.after_jobs) & set(origin.jobs):
            raise _refuse(folder, origin, f"not of {', '.join(rule.after_jobs)}")
    elif origin.workflow_run != rule.workflow_run:
        raise _refuse(folder, origin, f"not of this run, {unquote(rule.workflow_run)}")
    return ""


def _refuse(folder: Path, origin: Origin, expected: str) -> ExportError:
    run = f", run {unquote(origin.workflow_run)}" if origin.workflow_run else ""
    return ExportError(
        f"the model in {folder} is of TrainJob {' and '.join(origin.jobs)}{run}, {expected}",
        hint="another run uses the same workspace and folder: give each its own, or run the training again; "
        "to use this model, name its TrainJob in after_jobs, or set any_run",
    )


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_SIZE_LIMIT))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _read_torchtune_config(path: Path) -> dict[str, str]:
    """Return the values of the arguments that `trainjob.frameworks.torchtune.framework` adds.

    TorchTune writes all of its arguments into this file before the first step (torchtune 0.6.1).
    """
    found = dict(re.findall(r"^(\w+): (\S+)$", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE))
    return {key: found[name] for name, key in _TORCHTUNE_KEYS.items() if found.get(name, "null") != "null"}
