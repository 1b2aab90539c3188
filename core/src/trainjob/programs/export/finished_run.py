"""A finished training in an output folder, of any framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.programs.export import torchtune_run, transformers_run
from trainjob.programs.export.checkpoint import Checkpoint
from trainjob.programs.export.run_record import read_metrics, read_parameters
from trainjob.programs.export.transformers_record import get_record_time, read_transformers_record

__all__ = ["FinishedRun", "find_run"]


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
    """
    of_transformers = get_record_time(output) > torchtune_run.get_last_save(output)
    return (_read_transformers_run if of_transformers else _read_torchtune_run)(output, adapter)


def _read_transformers_run(output: Path, adapter: str) -> FinishedRun:
    record = read_transformers_record(output)
    checkpoint = transformers_run.find_checkpoint(output, record, adapter)
    unmerged = adapter == "merge" and checkpoint.kind == "adapter"
    note = "the run has no merged model, so the adapter is exported alone" if unmerged else ""
    return FinishedRun(checkpoint, record.metrics, record.metadata, note)


def _read_torchtune_run(output: Path, adapter: str) -> FinishedRun:
    checkpoint = torchtune_run.find_checkpoint(output, adapter)
    parameters = read_parameters(output)
    return FinishedRun(checkpoint, read_metrics(output), {"parameters": parameters} if parameters else {})
