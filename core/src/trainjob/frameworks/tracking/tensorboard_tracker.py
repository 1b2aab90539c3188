"""Tracked run as event files for TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainjob.frameworks.tracking.settings import TrackedRun, TrainingEnd
from trainjob.frameworks.tracking.trackers import StepValues
from trainjob.programs.locked_library import import_library

__all__ = ["create"]

# The library writes in a thread of its own, which `flush` does not wait for (tensorboardX 2.6).
_FLUSH_SECONDS = 2


def create(run: TrackedRun) -> _TensorBoardTracker:
    """Return the tracker of a run with the option `folder`."""
    return _TensorBoardTracker(run)


class _TensorBoardTracker:
    """Event files in one folder.

    See [trainjob.frameworks.tracking.trackers.Tracker][] for the methods. Each attempt adds a file. TensorBoard
    shows all files of a folder as one run.
    """

    title = "TensorBoard"

    def __init__(self, run: TrackedRun) -> None:
        self._run, self._folder = run, Path(run.options["folder"])
        self._writer: Any = None

    def open(self) -> list[str]:
        import_library("tensorboardX", "frameworks.tracking.locks.tensorboardx")
        self._folder.mkdir(parents=True, exist_ok=True)
        return [f"event files in {self._folder}"]

    def record(self, steps: Sequence[StepValues]) -> None:
        writer = self._writer or self._create_writer(steps[0].step)
        for step in steps:
            for name, value in step.values.items():
                writer.add_scalar(name, value, step.step, walltime=step.time)
        writer.flush()  # raises an error if the disk is full

    def close(self, end: TrainingEnd) -> None:
        writer = self._writer or self._create_writer(None)
        writer.add_text("exit_code", str(end.exit_code))
        writer.close()

    def _create_writer(self, first_step: int | None) -> Any:
        """Create the file of this attempt.

        TensorBoard hides an earlier attempt's values from `purge_step` on, which a resumed training computes again. An
        attempt without steps hides none.
        """
        from tensorboardX import SummaryWriter

        # The file's name has only the second and the host. A file of that name would be replaced (tensorboardX 2.6).
        suffix = f".{time.time_ns()}"
        self._writer = SummaryWriter(
            str(self._folder), purge_step=first_step, filename_suffix=suffix, flush_secs=_FLUSH_SECONDS
        )
        self._writer.add_text("parameters", _to_table(self._run.parameters), first_step)
        self._writer.add_text("tags", _to_table(self._run.tags), first_step)
        return self._writer


def _to_table(values: Mapping[str, str]) -> str:
    """Return values as a table in Markdown."""
    rows = [f"| {name} | {_escape(value)} |" for name, value in values.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
