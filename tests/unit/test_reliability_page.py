"""Tests of the generator of docs/evidence/reliability.md."""

from __future__ import annotations

import json
import re

from tests.support.code_blocks import ROOT
from tools.evidence.reliability import render_page

TEMPLATE = "# Page\n\n{{logs: fault, lines}}\n\n{{soak}}\n"
SENTENCE = re.compile(r'Results of "(.+)", commit .+?, (\d{4}-\d\d-\d\d).*, .+:')


def write_rows(folder, table, *rows):
    (folder / f"{table}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_table_without_rows_keeps_its_rows_and_date(tmp_path):
    write_rows(
        tmp_path, "logs", {"fault": "reset", "lines": 5, "test": "t"}, {"fault": "reset", "lines": 7, "test": "u"}
    )
    page = render_page(TEMPLATE, tmp_path, "")
    assert "| reset | 12 |" in page
    assert "Not measured." in page  # the soak test
    old = page.replace(SENTENCE.search(page)[2], "2020-01-02")
    (tmp_path / "logs.jsonl").unlink()
    write_rows(tmp_path, "soak", {"jobs": 3})
    updated = render_page(TEMPLATE, tmp_path, old)
    assert "| reset | 12 |" in updated
    assert "| jobs | 3 |" in updated
    dates = dict(SENTENCE.findall(updated))
    assert dates["logs"] == "2020-01-02"
    assert dates["soak"] != "2020-01-02"
    assert render_page(TEMPLATE, tmp_path / "empty", updated) == updated


def test_a_kept_table_of_an_unknown_commit_says_so(tmp_path):
    old = 'Results of "logs", 2020-01-02, 2 cores, Python 3.11.7:\n\n| fault | lines |\n| --- | --- |\n| reset | 12 |\n'
    page = render_page(TEMPLATE, tmp_path, old)
    assert 'Results of "logs", commit not recorded, 2020-01-02, 2 cores, Python 3.11.7:' in page
    assert render_page(TEMPLATE, tmp_path, page) == page


def test_the_page_has_the_text_of_its_template(tmp_path):
    template = (ROOT / "tools" / "evidence" / "reliability.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "evidence" / "reliability.md").read_text(encoding="utf-8")
    assert render_page(template, tmp_path, page) == page
