"""Tests of the generator of docs/evidence/airflow.md."""

from __future__ import annotations

from tests.support.code_blocks import ROOT
from tools.evidence.airflow_cases import render_page

TEMPLATE = "# Page\n\n{{cases}}\n"


def test_a_version_without_rows_keeps_its_column():
    old = [{"airflow": "3.1.8", "case": "pause", "result": "5.0 s | try 1"}]
    page = render_page(TEMPLATE, old, "")
    new = [
        {"airflow": "3.3.2", "case": "pause", "result": "2.0 s"},
        {"airflow": "3.3.2", "case": "retries", "result": "3.0 s"},
    ]
    page = render_page(TEMPLATE, new, page)
    assert "| pause | 2.0 s | 5.0 s \\| try 1 |" in page
    assert "| retries | 3.0 s | not measured |" in page
    assert render_page(TEMPLATE, [], page) == page


def test_the_page_has_the_text_of_its_template():
    template = (ROOT / "tools" / "evidence" / "airflow_cases.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "evidence" / "airflow.md").read_text(encoding="utf-8")
    assert render_page(template, [], page) == page
