"""Interface of an experiment tracker in the recorder, and its implementations by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from trainjob.frameworks.tracking.settings import TrackedRun, TrainingEnd

__all__ = ["RUN_ID_TAG", "StepValues", "Tracker", "create_tracker"]

RUN_ID_TAG = "trainjob.tracked_run"
"""Tag with the identifier of a run, by which a later attempt finds it."""


@dataclass(frozen=True)
class StepValues:
    """Values that a training logged at one step.

    Attributes:
        step: optimizer steps done.
        time: seconds since 1970 when they were logged.
        values: finite numbers by the trainer's names.
    """

    step: int
    time: float
    values: Mapping[str, float]


class Tracker(Protocol):
    """An experiment tracker with one run.

    Each method raises an exception of the tracker's library if it fails, and may then be called again.

    Attributes:
        title: name of the tracker for messages.
    """

    title: str

    def open(self) -> str:
        """Create the run, or continue that of an earlier attempt.

        Returns:
            The log's text about the location of the run.
        """

    def record(self, steps: Sequence[StepValues]) -> None:
        """Send the values of some steps."""

    def close(self, end: TrainingEnd) -> None:
        """End the run after the training has ended."""


def create_tracker(run: TrackedRun) -> Tracker:
    """Return the tracker of a run; its library is imported when the tracker is opened."""
    module = importlib.import_module(f"trainjob.frameworks.tracking.{run.backend}_tracker")
    return cast("Tracker", module.create(run))
