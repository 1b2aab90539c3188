"""Generator of docs/evidence/airflow.md from airflow_cases.md and the rows that `make e2e-airflow` has measured.

Usage: airflow_cases.py DIR. A version of Airflow without rows in DIR keeps its column of the page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.support.evidence import read_rows
from tests.support.markdown import table as markdown_table
from tools.evidence.measurement import describe_measurement

_HERE = Path(__file__).resolve().parent
_PAGE = _HERE.parents[1] / "docs" / "evidence" / "airflow.md"
_NOT_MEASURED = "not measured"
Columns = dict[str, dict[str, str]]
"""Result by case, by heading of the column."""


def render_page(template: str, rows: Iterable[Mapping[str, object]], page: str) -> str:
    """Return the page, with a row for each case and a column for each Airflow version.

    Args:
        template: text of airflow_cases.md, in which `{{cases}}` is the table's place.
        rows: rows with the keys `airflow`, `case` and `result`; of equal cases, the last one counts.
        page: present text of the page.
    """
    measurement = describe_measurement("make e2e-airflow")
    measured: Columns = {}
    for row in rows:
        heading = f"Airflow {row['airflow']}, {measurement}"
        measured.setdefault(heading, {})[str(row["case"])] = str(row["result"])
    versions = {_get_version(heading) for heading in measured}
    kept = {heading: column for heading, column in _read_columns(page).items() if _get_version(heading) not in versions}
    columns = dict(sorted({**kept, **measured}.items(), reverse=True))
    cases = list(dict.fromkeys(case for column in columns.values() for case in column))
    lines = [[case, *(column.get(case, _NOT_MEASURED) for column in columns.values())] for case in cases]
    return template.replace("{{cases}}", markdown_table(["Case", *columns], lines))


def _get_version(heading: str) -> str:
    return heading.partition(",")[0]


def _read_columns(page: str) -> Columns:
    """Return the columns of the page's table."""
    split = [re.split(r"\s*(?<!\\)\|\s*", line)[1:-1] for line in page.splitlines() if line.startswith("| ")]
    lines = [[cell.replace("\\|", "|") for cell in cells] for cells in split]
    if not lines:
        return {}
    head, _, *cases = lines
    return {
        heading: {cells[0]: cells[number] for cells in cases if cells[number] != _NOT_MEASURED}
        for number, heading in enumerate(head)
        if number
    }


if __name__ == "__main__":
    present = _PAGE.read_text(encoding="utf-8") if _PAGE.exists() else ""
    template = (_HERE / "airflow_cases.md").read_text(encoding="utf-8")
    _PAGE.write_text(render_page(template, read_rows(Path(sys.argv[1]), "airflow"), present), encoding="utf-8")
