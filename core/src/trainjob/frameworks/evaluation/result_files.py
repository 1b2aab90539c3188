"""Results of the single tasks on the workspace, with which an interrupted evaluation continues.

A file counts only for the same model, task and settings in the same workflow run, because the rows may be others in
another run. Model and dataset are identified by the names, sizes and times of their files.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.frameworks.durable_files import read_object, write_text
from trainjob.frameworks.evaluation.scores import Score, score_from_dict

__all__ = ["ResultFiles"]


@dataclass(frozen=True)
class ResultFiles:
    """The results of one model.

    Attributes:
        folder: folder of the files.
        conditions: everything on which the results depend besides the task.
    """

    folder: Path
    conditions: Mapping[str, Any]

    def read(self, task: str) -> dict[str, Score] | None:
        """Return the scores of a task; None if they are not there, or of other conditions."""
        found = read_object(self._get_path(task))
        if (found.get("task"), found.get("conditions")) != (task, self._digest):
            return None
        return {metric: score_from_dict(fields) for metric, fields in found["scores"].items()}

    def write(self, task: str, scores: Mapping[str, Score], samples: Iterable[Mapping[str, Any]]) -> None:
        """Write samples and then scores, so that scores are there only with their samples.

        Raises:
            OSError: the workspace is full, or cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(sample, default=str, ensure_ascii=False) for sample in samples)
        write_text(self._get_path(task, ".samples.jsonl"), "".join(f"{line}\n" for line in lines))
        fields = {metric: score.to_dict() for metric, score in scores.items()}
        record = {"task": task, "conditions": self._digest, "scores": fields}
        write_text(self._get_path(task), json.dumps(record))

    def _get_path(self, task: str, suffix: str = ".json") -> Path:
        return self.folder / f"{task.replace('/', '_')}{suffix}"

    @functools.cached_property
    def _digest(self) -> str:  # once, because a dataset may have a million files
        return hashlib.sha256(json.dumps(self.conditions, sort_keys=True).encode()).hexdigest()
