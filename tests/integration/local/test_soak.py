"""Test that the soak test of `make reliability` runs, and counts what its jobs did."""

from __future__ import annotations

from tools.evidence import soak


def test_a_soak_of_a_few_jobs_loses_nothing(monkeypatch):
    monkeypatch.setattr(soak, "WORKERS", 1)
    figures = soak.run(0, warm_up_seconds=0)
    assert {name: figures[name] for name in ("unexpected results", "threads that did not end", "lost lines")} == {
        "unexpected results": 0,
        "threads that did not end": 0,
        "lost lines": 0,
    }
