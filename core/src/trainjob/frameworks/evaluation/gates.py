"""Gates: rules for metrics that decide whether a model may be promoted.

A model that does not pass is a result and no error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.evaluation.comparison import Difference
from trainjob.frameworks.evaluation.scores import Score

__all__ = ["Verdict", "apply_gates", "check_gates"]


@dataclass(frozen=True)
class Verdict:
    """Result of one rule.

    Attributes:
        metric: the metric, such as `tickets/exact_match`.
        rule: the rule, such as `minimum 0.9`.
        passed: whether the metric follows it.
        found: what was compared with the rule.
    """

    metric: str
    rule: str
    passed: bool
    found: str

    def __str__(self) -> str:
        return f"{self.metric}: {'passed' if self.passed else 'failed'}: {self.rule}: {self.found}"


def check_gates(gates: Mapping[str, Mapping[str, Any]], scores: Mapping[str, Score]) -> None:
    """Refuse gates that do not fit the metrics, before the champion is scored.

    Args:
        gates: fields of a [trainjob.spec.Gate][] by metric.
        scores: scores of the model.

    Raises:
        InvalidSpec: a gate names a metric that the tasks do not have, or compares one that cannot be compared row by
            row.
    """
    if problems := list(_find_problems(gates, scores)):
        raise InvalidSpec(problems)


def apply_gates(
    gates: Mapping[str, Mapping[str, Any]],
    scores: Mapping[str, Score],
    differences: Mapping[str, Difference],
    *,
    has_champion: bool = True,
) -> list[Verdict]:
    """Return the verdict of each rule.

    Args:
        gates: gates that [check_gates][] has accepted.
        scores: scores of the model.
        differences: differences to the champion.
        has_champion: whether there is a champion; without one, rules that compare have passed.
    """
    return [
        verdict
        for metric, gate in gates.items()
        for verdict in (
            *_apply_limits(metric, gate, scores[metric]),
            *_apply_comparisons(metric, gate, scores[metric], differences.get(metric), has_champion=has_champion),
        )
    ]


def _find_problems(gates: Mapping[str, Mapping[str, Any]], scores: Mapping[str, Score]) -> Iterator[Problem]:
    for metric, gate in gates.items():
        if metric not in scores:
            yield Problem("gates", metric, f"the tasks have the metrics {', '.join(sorted(scores))}")
            continue
        compares = gate.get("not_worse_than_champion") is not None or gate.get("better_than_champion")
        if compares and not scores[metric].is_comparable and math.isfinite(scores[metric].value):
            rule = (
                "this metric has no items of rows, so it can't be compared with the champion: use minimum or maximum, "
                "or another metric"
            )
            yield Problem(f"gates.{metric}", ", ".join(gate), rule)


def _apply_limits(metric: str, gate: Mapping[str, Any], score: Score) -> Iterator[Verdict]:
    value = f"{score.value:.6g}"
    if (minimum := gate.get("minimum")) is not None:
        yield Verdict(metric, f"minimum {minimum:g}", score.value >= minimum, value)
    if (maximum := gate.get("maximum")) is not None:
        yield Verdict(metric, f"maximum {maximum:g}", score.value <= maximum, value)


def _apply_comparisons(
    metric: str, gate: Mapping[str, Any], score: Score, difference: Difference | None, *, has_champion: bool
) -> Iterator[Verdict]:
    low, found = math.nan, f"{score.value:.6g}, without the same rows of the champion"  # one of the two has diverged
    if not has_champion:
        low, found = math.inf, "there is no champion yet"
    elif difference:
        low = difference.low
        found = f"better by {difference.value:.6g}, from {low:.6g} to {difference.high:.6g}"
    if (margin := gate.get("not_worse_than_champion")) is not None:
        yield Verdict(metric, f"not worse than the champion by more than {margin:g}", low >= -margin, found)
    if gate.get("better_than_champion"):
        yield Verdict(metric, "better than the champion", low > 0, found)
