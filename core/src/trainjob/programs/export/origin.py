"""Origin of a model in a workspace: the TrainJob that trained it, and the workflow run.

Several workflow runs may use one workspace, one after the other or at once. A step that reads the model of another run
would publish or judge a model that its own run has not trained. `trainjob_run.json` and the `manifest.json` of an
export have the origin.

A framework with another record has a module `origin` with the file's name, `RECORD_FILE`, and a function
`read_origin(record)`. It returns a dict with `trained_by`, the TrainJob, and `workflow_run`, as far as the file at the
path `record` has them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from trainjob.errors import ExportError
from trainjob.framework_modules import load_modules
from trainjob.job_variables import RUN_VARIABLE

__all__ = ["Origin", "OriginRule", "check_origin", "get_own_run", "list_record_files", "read_origin"]

TRAINED_BY, WORKFLOW_RUN = "trained_by", "workflow_run"
"""Keys of the records in JSON: the TrainJob that trained the model, and its workflow run."""
_JSON_FILES = ("trainjob_run.json", "manifest.json")
_SIZE_LIMIT = 16 << 20
_PLAIN_TEXT = re.compile(r"[\w./~%-]{1,4096}", re.ASCII)


@dataclass(frozen=True)
class Origin:
    """Origin of a model.

    Attributes:
        job: name of the TrainJob that trained it; empty if it has no record.
        workflow_run: workflow run of this TrainJob; empty if it has none.
    """

    job: str = ""
    workflow_run: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the record of the origin; empty without one."""
        return {key: text for key, text in ((TRAINED_BY, self.job), (WORKFLOW_RUN, self.workflow_run)) if text}


@dataclass(frozen=True)
class OriginRule:
    """The origins that a step accepts: a workflow run, and TrainJobs of other runs.

    An empty rule accepts every origin.

    Attributes:
        after_jobs: names of TrainJobs.
        workflow_run: the workflow run; empty for none.
    """

    after_jobs: tuple[str, ...] = ()
    workflow_run: str = ""


def get_own_run() -> str:
    """Return the workflow run of the TrainJob of this container; empty if it has none."""
    return os.environ.get(RUN_VARIABLE, "")


def list_record_files() -> dict[str, Callable[[Path], Mapping[str, Any]]]:
    """Return the function that reads the origin, by the name of each framework's record."""
    records: dict[str, Callable[[Path], Mapping[str, Any]]] = dict.fromkeys(_JSON_FILES, _read_json)
    for module in load_modules("origin", strict=True):
        records[module.RECORD_FILE] = module.read_origin
    return records


def read_origin(folder: Path) -> Origin:
    """Return the origin in the newest record of a folder; an empty one without a record."""
    readers = list_record_files()
    records = [path for name in readers if (path := folder / name).is_file() and not path.is_symlink()]
    if not records:
        return Origin()
    newest = max(records, key=lambda path: path.stat().st_mtime)
    found = readers[newest.name](newest)
    texts = {key: text for key, text in found.items() if isinstance(text, str) and _PLAIN_TEXT.fullmatch(text)}
    return Origin(texts[TRAINED_BY], texts.get(WORKFLOW_RUN, "")) if TRAINED_BY in texts else Origin()


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
    if rule == OriginRule():
        return ""
    origin = read_origin(folder)
    if not origin.job:
        return f"{folder} has no record of the TrainJob that trained its model, so its origin is not checked"
    if origin.job in rule.after_jobs or (rule.workflow_run and origin.workflow_run == rule.workflow_run):
        return ""
    run = f", run {unquote(origin.workflow_run)}" if origin.workflow_run else ""
    accepted = [*rule.after_jobs, *([f"this run, {unquote(rule.workflow_run)}"] if rule.workflow_run else [])]
    raise ExportError(
        f"the model in {folder} is of TrainJob {origin.job}{run}, not of {' or '.join(accepted)}",
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
