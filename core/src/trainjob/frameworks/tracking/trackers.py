"""Interface of an experiment tracker in the recorder, and its implementations by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from trainjob.credentials import redact_credentials
from trainjob.frameworks.tracking.settings import TrackedRun, TrainingEnd

__all__ = ["RUN_ID_TAG", "StepValues", "Tracker", "create_tracker", "describe_error", "is_access_denied"]

RUN_ID_TAG = "trainjob.tracked_run"
"""Tag with the identifier of a run, by which a later attempt finds it."""


_MAX_ERROR_LENGTH = 300


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

    def open(self) -> Sequence[str]:
        """Create the run, or continue that of an earlier attempt.

        Returns:
            Lines for the log: the location of the run, and what is not sent to it.
        """

    def record(self, steps: Sequence[StepValues]) -> None:
        """Send the values of some steps."""

    def close(self, end: TrainingEnd) -> None:
        """End the run after the training has ended."""


def create_tracker(run: TrackedRun) -> Tracker:
    """Return the tracker of a run; its library is imported when the tracker is opened."""
    module = importlib.import_module(f"trainjob.frameworks.tracking.{run.backend}_tracker")
    return cast("Tracker", module.create(run))


def describe_error(error: Exception) -> str:
    """Return an error as one line without credentials, cut in its middle."""
    text = redact_credentials(" ".join(f"{type(error).__name__}: {error}".split()))
    half = _MAX_ERROR_LENGTH // 2  # the cause is often at the end
    return text if len(text) <= _MAX_ERROR_LENGTH else f"{text[:half]} … {text[-half:]}"


def is_access_denied(error: Exception) -> bool:
    """Return whether an error of mlflow says that the server refuses the login."""
    get_status = getattr(error, "get_http_status_code", None)
    return get_status is not None and get_status() in (401, 403)
