"""Comparison of two models that were scored on the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trainjob.frameworks.evaluation.scores import Aggregation, Score

__all__ = ["Difference", "compare"]

_RESAMPLES = (10_000, 1_000, 100)  # with the first, an interval of 95 % is stable in its second digit
_LONGEST = 60.0  # seconds for the resamples of a metric
_SEED = 0  # the same scores give the same interval, so a repeated step decides in the same way


@dataclass(frozen=True)
class Difference:
    """Advantage of the model over the champion in a metric; positive if the model is better.

    Attributes:
        value: difference of the two metrics, whose sign is changed if a smaller value is a better one.
        low, high: ends of its confidence interval.
        rows: number of rows.
        resamples: number of resamples from which the interval is computed.
    """

    value: float
    low: float
    high: float
    rows: int
    resamples: int


def compare(
    model: Score, champion: Score, confidence: float, aggregate: Aggregation | None = None
) -> Difference | None:
    """Return the advantage of a model over the champion; None if they can't be compared.

    They can be compared if they have the same rows, and if each resample has a value.

    The interval is the percentile bootstrap of the paired rows (Efron and Tibshirani 1993, chapter 13): each resample
    has the same rows of both models. It varies less than a difference of two separate intervals, because easy rows are
    easy for both models. If an aggregation is slow, fewer resamples are computed: 1,000, or at least 100.

    Args:
        model: score of the model.
        champion: score of the champion in the same metric.
        confidence: confidence level of the interval, such as 0.95.
        aggregate: function that computes the metric from the rows, for metrics that are not their mean.
    """
    if not model.is_comparable or model.rows.keys() != champion.rows.keys():
        return None
    rows, others = [*model.rows.values()], [champion.rows[row] for row in model.rows]
    is_mean = model.is_mean and champion.is_mean
    if not is_mean and aggregate is None:
        return None
    import numpy as np  # not before the harness is installed

    sign = 1 if model.higher_is_better else -1
    estimate = _estimate_means(rows, others) if is_mean or aggregate is None else _estimate(aggregate, rows, others)
    count, generator = len(rows), np.random.default_rng(_SEED)
    everything = np.arange(count)
    try:
        value = estimate(everything)
        resamples = _RESAMPLES[0] if is_mean else _choose_resamples(_measure(lambda: estimate(everything)))
        # One resample at a time, because all of them would take 8 GB for 100,000 rows.
        values = [sign * estimate(generator.integers(0, count, count)) for _ in range(resamples)]
    except Exception:  # noqa: BLE001 - such as a perplexity that is too large for a float; it may be the user's code
        return None
    if not np.isfinite(values).all():
        return None
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(sign * float(value), float(low), float(high), count, resamples)


def _measure(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes; the least of three, as others may run, too."""
    found = []
    for _ in range(3):
        begin = time.monotonic()
        call()
        found.append(time.monotonic() - begin)
    return min(found)


def _choose_resamples(seconds: float) -> int:
    """Return the number of resamples, each of which takes this time.

    It is a power of ten, so that another try chooses the same number, although its times differ.
    """
    return next((count for count in _RESAMPLES if count * seconds <= _LONGEST), _RESAMPLES[-1])


def _estimate_means(rows: Sequence[float], others: Sequence[float]) -> Callable[[Any], float]:
    """Return the function that computes the difference of means for the numbers of rows."""
    import numpy as np

    differences = np.array(rows) - np.array(others)
    return lambda chosen: differences[chosen].mean()


def _estimate(aggregate: Aggregation, rows: Sequence[Any], others: Sequence[Any]) -> Callable[[Any], float]:
    """Return the function that computes the difference of a metric for the numbers of rows."""

    def estimate(chosen: Any) -> float:
        numbers = chosen.tolist()
        return float(aggregate([rows[row] for row in numbers])) - float(aggregate([others[row] for row in numbers]))

    return estimate
