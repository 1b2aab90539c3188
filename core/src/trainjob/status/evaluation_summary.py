"""Report of an evaluation as Markdown, for the people who decide about a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["summarize_evaluation"]


def summarize_evaluation(report: Mapping[str, Any]) -> str:
    """Return Markdown with the scores of both models, their differences, and the gates.

    A model that is better has a positive difference, also in a metric of which a smaller value is better.

    Args:
        report: report of the program of [trainjob.spec.Evaluate][], such as the JSON object in `report.json`.
    """
    scores, champion, differences = (report.get(key) or {} for key in ("scores", "champion_scores", "differences"))
    gates = report.get("gates") or ()
    failed = sum(not gate["passed"] for gate in gates)
    verdict = "There are no gates"
    if gates:
        verdict = f"{failed} of {len(gates)} gates failed" if failed else "All gates passed"
    metrics = (
        (_code(name), _format(scores[name]), _format(champion.get(name)), _format_interval(differences.get(name)))
        for name in scores
    )
    parts = [
        f"**{verdict}.**",
        _table(("Metric", "New model", "Champion", "Better by"), metrics),
    ]
    if gates:
        verdicts = (
            (_code(gate["metric"]), gate["rule"], "passed" if gate["passed"] else "**failed**", gate["found"])
            for gate in gates
        )
        parts.append(_table(("Metric", "Gate", "Verdict", "Found"), verdicts))
    return "\n\n".join(parts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_escape(cell) for cell in line)} |" for line in lines)


def _escape(cell: str) -> str:
    return " ".join(cell.split()).replace("|", "\\|")


def _code(name: str) -> str:
    """Return a name as code, because it may have characters that Markdown would interpret."""
    return "`" + name.replace("`", "'") + "`"


def _format(score: Mapping[str, Any] | None) -> str:
    if score is None:
        return "-"
    if score["value"] is None:
        return "no number"  # a diverged model
    error = score.get("stderr")
    return f"{score['value']:.4g}" + ("" if error is None else f" ± {error:.2g}")


def _format_interval(difference: Mapping[str, Any] | None) -> str:
    if difference is None:
        return "-"
    return f"{difference['value']:.4g} ({difference['low']:.4g} to {difference['high']:.4g})"
