"""Comparison of two models that were scored on the same rows."""

from __future__ import annotations

from dataclasses import dataclass

from trainjob.frameworks.evaluation.scores import Score

__all__ = ["Difference", "compare"]

_RESAMPLES = 10_000  # with which an interval of 95 % is stable in its second digit
_SEED = 0  # the same scores give the same interval, so a repeated step decides in the same way


@dataclass(frozen=True)
class Difference:
    """Advantage of the model over the champion in a metric; positive if the model is better.

    Attributes:
        value: mean difference of the rows, whose sign is changed if a smaller value is a better one.
        low, high: ends of its confidence interval.
        rows: number of rows.
    """

    value: float
    low: float
    high: float
    rows: int


def compare(model: Score, champion: Score, confidence: float) -> Difference | None:
    """Return the advantage of a model over the champion; None if their rows differ.

    The interval is the percentile bootstrap of the paired differences (Efron and Tibshirani 1993, chapter 13). It
    varies less than a difference of two separate intervals, because easy rows are easy for both models.

    Args:
        model: score of the model.
        champion: score of the champion in the same metric.
        confidence: confidence level of the interval, such as 0.95.
    """
    if not model.is_comparable or model.rows.keys() != champion.rows.keys():
        return None
    import numpy as np  # not before the harness is installed

    sign = 1 if model.higher_is_better else -1
    differences = sign * np.array([model.rows[row] - champion.rows[row] for row in model.rows])
    generator, count = np.random.default_rng(_SEED), len(differences)
    # One resample at a time, because all of them would take 8 GB for 100,000 rows.
    means = [differences[generator.integers(0, count, count)].mean() for _ in range(_RESAMPLES)]
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(float(differences.mean()), float(low), float(high), count)
