"""The file `trainjob_run.json` that a run of any framework may leave in its output folder, for its export.

The training pod writes it before the first step, with `complete: false`. After all other files are on disk, it replaces
the file with `complete: true`. [trainjob.programs.export.recorded_run][] describes the other files.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainjob.errors import ExportError
from trainjob.programs.fetch.folder import Folder

__all__ = ["RECORD_FILE", "RunRecord", "get_record_time", "read_run_record"]

RECORD_FILE = "trainjob_run.json"
_IDENTIFIER = re.compile(r"[A-Za-z][\w.-]{0,62}", re.ASCII)  # it becomes a tag of the model card
_FOLDER = re.compile(r"[\w-][\w.-]{0,127}", re.ASCII)  # below the output folder, and not hidden
_SIZE_LIMIT = 16 << 20


@dataclass(frozen=True)
class RunRecord:
    """The record of a run.

    Attributes:
        framework: name of the framework, a plain identifier.
        complete: whether the run has finished, and all of its files are on disk.
        method: the framework's method, such as `sft`.
        framework_version: version of the framework.
        model: the user's name of the model; may be empty.
        adapter: whether the run trained an adapter (LoRA).
        unmerged: why the merged model that the request wants is missing; empty if it is not.
        step: number of steps trained; 0 if the run is not complete.
        epoch: number of epochs trained, which may be a fraction.
        attempts: for each attempt: the step from which it started, its processes and its nodes; empty for a single one
            with one process.
        parameters: the framework's arguments by name, without paths in the pod.
        parent: run and step of the checkpoint of another training from which this one started, and the fields that it
            changed; empty if it started from the model.
        metrics: the training's last metrics. NaN and infinity are texts, because JSON has no such numbers.
        folders: names of the subfolders of the output folder that belong to the model, also with weights; None if the
            framework does not name them.
        library: name of the library that loads the model, as the hub writes it; empty for transformers.
    """

    framework: str
    complete: bool
    method: str
    framework_version: str = ""
    model: str = ""
    adapter: bool = False
    unmerged: str = ""
    step: int = 0
    epoch: float = 0.0
    attempts: tuple[Mapping[str, Any], ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, int | float | str] = field(default_factory=dict)
    parent: Mapping[str, Any] = field(default_factory=dict)
    folders: tuple[str, ...] | None = None
    library: str = ""

    @property
    def metadata(self) -> dict[str, Any]:
        """Values for the manifest: framework, method, the model's name, parameters, parent."""
        known = {
            "framework": self.framework,
            "framework_version": self.framework_version,
            "method": self.method,
            "model": self.model,
            "attempts": [dict(attempt) for attempt in self.attempts],
            "parameters": dict(self.parameters),
            "parent": dict(self.parent),
        }
        return {name: value for name, value in known.items() if value}


def get_record_time(output: Path) -> float:
    """Return the time of the record in `output`, in seconds since 1970; 0.0 without one."""
    try:
        return (output / RECORD_FILE).lstat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return 0.0


def read_run_record(output: Path) -> RunRecord:
    """Return the record of the run in `output`.

    Raises:
        ExportError: the file cannot be read, is a link, or is not the record of a run.
    """
    path = output / RECORD_FILE
    try:
        with Folder(output).open_for_reading(RECORD_FILE) as file:
            content = file.read(_SIZE_LIMIT)
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror}", hint="it must be a file, not a link") from None
    try:
        return _parse(json.loads(content, parse_constant=_parse_number, parse_float=_parse_number))
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ExportError(
            f"{path} is not the record of a run", hint="it was changed after the training; train again"
        ) from None


def _parse(found: Mapping[str, Any]) -> RunRecord:
    """Return the record of parsed JSON.

    Raises:
        ValueError, LookupError, TypeError: it is not the record of a run.
    """
    json.dumps(found, ensure_ascii=False).encode()  # no lone surrogates, which the manifest could not contain
    if not _IDENTIFIER.fullmatch(found["framework"]):
        raise ValueError
    complete = found["complete"] is True
    return RunRecord(
        framework=found["framework"],
        complete=complete,
        method=_expect(found["method"], str),
        framework_version=_expect(found.get("framework_version", ""), str),
        model=_expect(found.get("model", ""), str),
        adapter=_expect(found["adapter"], bool) if complete else False,
        unmerged=_expect(found.get("unmerged", ""), str),
        step=_expect(found["step"], int) if complete else 0,
        epoch=_expect(found["epoch"], int, float) if complete else 0.0,
        attempts=tuple(_expect(each, dict) for each in _expect(found.get("attempts", []), list)),
        parameters=_select_parameters(_expect(found.get("parameters", {}), dict)),
        metrics=_select_metrics(_expect(found.get("metrics", {}), dict)),
        parent=_select_parent(_expect(found.get("parent", {}), dict)),
        folders=_parse_folders(found.get("folders")),
        library=_parse_library(found.get("library", "")),
    )


def _expect(value: Any, *types: type) -> Any:
    if type(value) not in types:  # a bool is an int, too
        raise TypeError
    return value


def _parse_folders(found: Any) -> tuple[str, ...] | None:
    if found is None:
        return None
    names = tuple(_expect(name, str) for name in _expect(found, list))
    if not all(map(_FOLDER.fullmatch, names)):
        raise ValueError
    return names


def _parse_library(found: Any) -> str:
    name: str = _expect(found, str)
    if name and not _IDENTIFIER.fullmatch(name):
        raise ValueError
    return name


def _parse_number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else str(number)


def _select_parameters(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that have a value, without paths in the training's pod."""
    return {
        name: value
        for name, value in found.items()
        if value is not None and not (isinstance(value, str) and value.startswith("/"))
    }


def _select_parent(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of the parent without its folder in the training's pod."""
    types = {"run": str, "step": int, "changed": list}
    return {name: _expect(found[name], kind) for name, kind in types.items() if found.get(name) not in (None, [])}


def _select_metrics(found: Mapping[str, Any]) -> dict[str, int | float | str]:
    return {name: value for name, value in found.items() if type(value) in (int, float, str)}
