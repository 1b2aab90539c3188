"""A hook that records the results of fuzz tests as evidence."""

from __future__ import annotations

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    fuzzed = getattr(getattr(item, "function", None), "fuzzed", None)
    if fuzzed and call.when == "call" and "evidence" in item.fixturenames:
        target, results = fuzzed
        executions = sum(results.values())
        shares = ", ".join(f"{kind} {100 * count / executions:.0f} %" for kind, count in results.most_common(6))
        row = {"target": target, "executions": executions, "result": shares if report.passed else f"failed; {shares}"}
        item.funcargs["evidence"]("fuzz", **row)
    return report


@pytest.fixture(autouse=True)
def _evidence(evidence):
    """Use the evidence fixture, which the report hook needs when a fuzz test has ended."""
