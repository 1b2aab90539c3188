"""Tests of the summary of an evaluation for people."""

from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from trainjob.status import summarize_evaluation

SCORES = {
    "tickets/exact_match": {"value": 0.93, "stderr": 0.0161, "higher_is_better": True},
    "gsm8k/exact_match,a|b": {"value": 0.5, "stderr": None, "higher_is_better": True},
    "tickets/loss": {"value": None, "stderr": None, "higher_is_better": False},
}
CHAMPION = {"tickets/exact_match": {"value": 0.9, "stderr": 0.019, "higher_is_better": True}}
DIFFERENCES = {"tickets/exact_match": {"value": 0.03, "low": -0.004, "high": 0.061, "rows": 250}}
PASSED = {"metric": "tickets/exact_match", "rule": "minimum 0.9", "passed": True, "found": "0.93"}
FAILED = {**PASSED, "rule": "better than the champion", "passed": False, "found": "better by 0.03"}


def test_the_tables_have_the_scores_the_differences_and_the_verdicts():
    report = {"scores": SCORES, "champion_scores": CHAMPION, "differences": DIFFERENCES, "gates": [PASSED, FAILED]}
    assert summarize_evaluation(report) == (
        "**1 of 2 gates failed.**\n\n"
        "| Metric | New model | Champion | Better by |\n"
        "| --- | --- | --- | --- |\n"
        "| `tickets/exact_match` | 0.93 ± 0.016 | 0.9 ± 0.019 | 0.03 (-0.004 to 0.061) |\n"
        "| `gsm8k/exact_match,a\\|b` | 0.5 | - | - |\n"
        "| `tickets/loss` | no number | - | - |\n\n"
        "| Metric | Gate | Verdict | Found |\n"
        "| --- | --- | --- | --- |\n"
        "| `tickets/exact_match` | minimum 0.9 | passed | 0.93 |\n"
        "| `tickets/exact_match` | better than the champion | **failed** | better by 0.03 |"
    )


@pytest.mark.parametrize(("gates", "verdict"), [([PASSED], "All gates passed."), ([], "There are no gates.")])
def test_the_first_line_has_the_verdict(gates, verdict):
    assert summarize_evaluation({"scores": SCORES, "gates": gates}).startswith(f"**{verdict}**\n\n| Metric | New")


def test_a_name_adds_no_markup_and_no_cell():
    name = "a`b\n| c | <img src=x>"
    html = MarkdownIt("gfm-like", {"linkify": False}).render(
        summarize_evaluation({"scores": {name: SCORES["tickets/loss"]}})
    )
    assert "<img" not in html
    assert html.count("<td>") == 4
