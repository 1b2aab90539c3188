"""The conformance report shows, for each case and back end, the worst result that was seen."""

from __future__ import annotations

import pytest

from tests.conformance.report import Report


def add_outcome(report, case, backend, outcome, *, when="call", xfail="", reason=""):
    """Add an outcome to the report, as pytest does."""
    outcome_report = pytest.TestReport(
        nodeid=f"tests/conformance/test_life.py::{case}[{backend}-x]",
        location=("", 0, ""),
        keywords={},
        outcome=outcome,
        longrepr=("file", 1, reason) if reason else None,
        when=when,
        user_properties=[("backend", backend), ("title", f"It {case}")],
    )
    if xfail:
        outcome_report.wasxfail = xfail
    report.pytest_runtest_logreport(outcome_report)


def test_each_cell_shows_the_worst_result():
    report = Report(["laptop", "real"], None)
    add_outcome(report, "lives", "laptop", "passed")
    add_outcome(report, "lives", "laptop", "failed")
    add_outcome(report, "lives", "laptop", "passed")
    add_outcome(report, "lives", "real", "passed")
    add_outcome(report, "ends", "laptop", "skipped", xfail="it has no end")
    add_outcome(report, "ends", "real", "skipped", when="setup", reason="not built")
    assert report.to_text_lines()[2:] == [
        "      NO       yes  It lives",
        " differs         -  It ends",
    ]


def test_an_unexpected_pass_and_a_broken_fixture_are_failures():
    report = Report(["laptop"], None)
    add_outcome(report, "lives", "laptop", "passed", xfail="it used to differ")
    add_outcome(report, "ends", "laptop", "failed", when="setup")
    assert [line.split()[0] for line in report.to_text_lines()[2:]] == ["NO", "NO"]


def test_known_differences_are_notes_of_the_page():
    report = Report(["laptop", "real"], None)
    add_outcome(report, "ends", "laptop", "skipped", xfail="it has no end")
    add_outcome(report, "ends", "real", "passed")
    page = report.to_markdown()
    assert "| It ends | differs [1] | yes |" in page
    assert "1. It ends (laptop): it has no end" in page
