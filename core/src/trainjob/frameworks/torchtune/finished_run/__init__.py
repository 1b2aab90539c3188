"""A finished TorchTune run in an output folder, for its export; see [trainjob.programs.export.finished_run][]."""

from __future__ import annotations

from pathlib import Path

from trainjob.frameworks.torchtune.finished_run.checkpoint import find_checkpoint, get_last_write
from trainjob.frameworks.torchtune.finished_run.run_files import read_metrics, read_parameters
from trainjob.programs.export.finished_run import FinishedRun

__all__ = ["get_last_write", "read_run"]


def read_run(output: Path, adapter: str) -> FinishedRun:
    """Return the run that last wrote to `output`; see [find_checkpoint][]."""
    checkpoint = find_checkpoint(output, adapter)
    parameters = read_parameters(output)
    return FinishedRun(checkpoint, read_metrics(output), {"parameters": parameters} if parameters else {})
