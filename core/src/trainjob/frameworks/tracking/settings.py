"""Settings of a tracked run, as its program in the pod gets them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["TrackedRun", "TrainingEnd"]


@dataclass(frozen=True)
class TrackedRun:
    """A run of an experiment tracker.

    Attributes:
        backend: `mlflow`, `wandb` or `tensorboard`.
        run_id: identifier of the run, the same in all attempts.
        name: name of the run for people.
        options: options of the backend by name; see its tracker.
        parameters: parameters of the training by name.
        tags: origin of the run by name: workflow, task, TrainJob, attempt.
    """

    backend: str
    run_id: str
    name: str
    options: Mapping[str, str]
    parameters: Mapping[str, str]
    tags: Mapping[str, str]

    def to_json(self) -> str:
        """Return the settings as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TrackedRun:
        """Return the settings from the text of [to_json][].

        Raises:
            ValueError: the text is not JSON.
            TypeError: the text is JSON of another form.
        """
        values: dict[str, Any] = json.loads(text)
        return cls(**values)


@dataclass(frozen=True)
class TrainingEnd:
    """The end of a training.

    Attributes:
        exit_code: exit code of the training.
        is_terminated: whether the pod got SIGTERM before.
    """

    exit_code: int
    is_terminated: bool = False
