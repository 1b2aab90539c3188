"""Tests of the generator of pages from tables of tests."""

from __future__ import annotations

import json
import re

import pytest

from tests.support.code_blocks import ROOT
from tools.evidence.tables import render_page

TEMPLATE = "# Page\n\n{{logs: fault, lines}}\n\n{{soak}}\n"
SENTENCE = re.compile(r'Results of "(.+)", commit .+?, (\d{4}-\d\d-\d\d).*, .+:')


def write_rows(folder, table, *rows):
    (folder / f"{table}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_table_without_rows_keeps_its_rows_and_date(tmp_path):
    write_rows(
        tmp_path, "logs", {"fault": "reset", "lines": 5, "test": "t"}, {"fault": "reset", "lines": 7, "test": "u"}
    )
    page = render_page(TEMPLATE, tmp_path, "", "make tables")
    assert "| reset | 12 |" in page
    assert "Not measured." in page  # the soak test
    old = page.replace(SENTENCE.search(page)[2], "2020-01-02")
    (tmp_path / "logs.jsonl").unlink()
    write_rows(tmp_path, "soak", {"jobs": 3})
    updated = render_page(TEMPLATE, tmp_path, old, "make tables")
    assert "| reset | 12 |" in updated
    assert "| jobs | 3 |" in updated
    dates = dict(SENTENCE.findall(updated))
    assert dates["logs"] == "2020-01-02"
    assert dates["soak"] != "2020-01-02"
    assert render_page(TEMPLATE, tmp_path / "empty", updated, "make tables") == updated


def test_the_largest_value_of_a_maximum_is_shown(tmp_path):
    write_rows(tmp_path, "hangs", *({"fault": "stop", "runs": 1, "slowest": value} for value in (1.2, 1.5, 1.1)))
    assert "| stop | 3 | 1.5 |" in render_page("{{hangs: fault, runs, slowest}}", tmp_path, "", "make tables")


@pytest.mark.parametrize("name", ["reliability", "watchdog"])
def test_the_page_has_the_text_of_its_template(name, tmp_path):
    template = (ROOT / "tools" / "evidence" / f"{name}.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "evidence" / f"{name}.md").read_text(encoding="utf-8")
    assert render_page(template, tmp_path, page, "make tables") == page
