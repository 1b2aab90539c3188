"""The report says of each case and back end what was seen, and nothing better."""

from __future__ import annotations

import pytest

from tests.conformance.report import Report


def told(report, case, backend, outcome, *, when="call", xfail="", why=""):
    """One outcome as pytest tells it."""
    said = pytest.TestReport(
        nodeid=f"tests/conformance/test_life.py::{case}[{backend}-x]",
        location=("", 0, ""),
        keywords={},
        outcome=outcome,
        longrepr=("file", 1, why) if why else None,
        when=when,
        user_properties=[("backend", backend), ("title", f"It {case}")],
    )
    if xfail:
        said.wasxfail = xfail
    report.pytest_runtest_logreport(said)


def test_each_cell_is_the_worst_that_was_seen():
    report = Report(["laptop", "real"], None)
    told(report, "lives", "laptop", "passed")
    told(report, "lives", "laptop", "failed")
    told(report, "lives", "laptop", "passed")
    told(report, "lives", "real", "passed")
    told(report, "ends", "laptop", "skipped", xfail="it has no end")
    told(report, "ends", "real", "skipped", when="setup", why="not built")
    assert report.lines()[2:] == [
        "      NO       yes  It lives",
        " differs         -  It ends",
    ]


def test_a_known_difference_that_is_gone_is_a_failure_and_a_broken_fixture_too():
    report = Report(["laptop"], None)
    told(report, "lives", "laptop", "passed", xfail="it used to differ")
    told(report, "ends", "laptop", "failed", when="setup")
    assert [line.split()[0] for line in report.lines()[2:]] == ["NO", "NO"]


def test_the_page_notes_known_differences():
    report = Report(["laptop", "real"], None)
    told(report, "ends", "laptop", "skipped", xfail="it has no end")
    told(report, "ends", "real", "passed")
    page = report.document()
    assert "| It ends | differs [1] | yes |" in page
    assert "1. It ends (laptop): it has no end" in page
