"""Scores of a model in a task, and the values of the single rows from which they are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Aggregation", "Score", "name_scores", "score_from_dict"]


Aggregation = Callable[[list[Any]], float]
"""Function that returns a metric for the items of rows."""


@dataclass(frozen=True)
class Score:
    """A metric of a model in a task.

    Attributes:
        value: the metric; NaN if the model gives no number, as a diverged one.
        stderr: its standard error; None if the harness has none.
        higher_is_better: whether a larger value is a better one; None if the task does not say so.
        rows: what the metric is computed from, for each row by its number in the task: a number, or a list such as log
            likelihood and bytes. It is empty if the metric is not computed from rows.
        is_mean: whether the metric is the mean of the rows; otherwise it has another aggregation.
    """

    value: float
    stderr: float | None = None
    higher_is_better: bool | None = None
    rows: Mapping[str, Any] = field(default_factory=dict, repr=False)
    is_mean: bool = True

    @property
    def is_comparable(self) -> bool:
        """Whether the metric can be compared row by row."""
        return bool(self.rows) and self.higher_is_better is not None

    def summarize(self) -> dict[str, Any]:
        """Return the score as JSON values, without its rows."""
        value = self.value if math.isfinite(self.value) else None
        return {"value": value, "stderr": self.stderr, "higher_is_better": self.higher_is_better}

    def to_dict(self) -> dict[str, Any]:
        """Return the score as JSON values, with its rows."""
        return {**self.summarize(), "rows": dict(self.rows), "is_mean": self.is_mean}


def score_from_dict(fields: Mapping[str, Any]) -> Score:
    """Return the score that [Score.to_dict][] described."""
    value = math.nan if fields["value"] is None else fields["value"]
    # Results of earlier versions have rows only for means.
    is_mean = fields.get("is_mean", True)
    return Score(value, fields["stderr"], fields["higher_is_better"], fields["rows"], is_mean)


def name_scores(tasks: Mapping[str, Mapping[str, Score]]) -> dict[str, Score]:
    """Return the scores of all tasks by `TASK/METRIC`, as gates name them."""
    return {f"{task}/{metric}": score for task, scores in tasks.items() for metric, score in scores.items()}
