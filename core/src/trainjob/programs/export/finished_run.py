"""A finished training in an output folder, of any framework.

A framework leaves the record `trainjob_run.json` ([trainjob.programs.export.run_record][]), or its package has a module
`finished_run` with two functions: `get_last_write(output)` returns the time of the last file that a run of the
framework wrote there, in seconds since 1970, or 0.0; `read_run(output, adapter)` returns this run, see [find_run][].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.errors import ExportError
from trainjob.framework_modules import load_modules
from trainjob.programs.export import recorded_run
from trainjob.programs.export.checkpoint import Checkpoint, list_names
from trainjob.programs.export.run_record import get_record_time, read_run_record

__all__ = ["FinishedRun", "find_run"]

_NO_OUTPUT = "export from the workspace that the fine-tune step wrote to, after it has ended"


@dataclass(frozen=True)
class FinishedRun:
    """The parts of a run that an export uses.

    Attributes:
        checkpoint: the final checkpoint.
        metrics: the training's last metrics.
        metadata: values for the manifest, such as `parameters`.
        note: a line for the log, if the export differs from the requested one; empty otherwise.
    """

    checkpoint: Checkpoint
    metrics: Mapping[str, Any]
    metadata: Mapping[str, Any]
    note: str = ""


def find_run(output: Path, adapter: str = "merge") -> FinishedRun:
    """Return the run that last wrote to `output`.

    If runs of several frameworks wrote there, the later one counts, even if it did not finish. An export then never
    sends the model of an earlier run by mistake.

    Args:
        output: folder that the run wrote to.
        adapter: `merge` or `keep`, see [trainjob.programs.export.program.Export][].

    Raises:
        ExportError: there is no complete checkpoint, or no adapter to keep.
        ImportError: the module of a framework cannot be imported.
    """
    if not output.is_dir():
        raise ExportError(f"{output} is not a folder", hint=_NO_OUTPUT)
    modules = load_modules("finished_run", strict=True)
    found = [(module.get_last_write(output), module.read_run) for module in modules]
    time, read_run = max([*found, (get_record_time(output), _read_recorded_run)], key=lambda each: each[0])
    if not time:
        raise ExportError(f"{output} contains no checkpoint; found: {list_names(output)}", hint=_NO_OUTPUT)
    run: FinishedRun = read_run(output, adapter)
    return run


def _read_recorded_run(output: Path, adapter: str) -> FinishedRun:
    record = read_run_record(output)
    checkpoint = recorded_run.find_checkpoint(output, record, adapter)
    unmerged = adapter == "merge" and checkpoint.kind == "adapter"
    note = "the run has no merged model, so the adapter is exported alone" if unmerged else ""
    return FinishedRun(checkpoint, record.metrics, record.metadata, note)
