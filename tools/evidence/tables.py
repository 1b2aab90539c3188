"""Generator of pages in docs/evidence from templates in this folder and the rows of tests.

Usage: tables.py PAGE DIR, where PAGE is `reliability` or `watchdog`. A table without rows in DIR keeps the rows and the
date that it has in the page. So some tests can update their own tables, without a run of all tests.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from tests.support.evidence import read_rows
from tests.support.markdown import table as markdown_table
from tools.evidence.measurement import describe_measurement

_HERE = Path(__file__).resolve().parent
_PAGES = _HERE.parents[1] / "docs" / "evidence"
_PLACEHOLDER = re.compile(r"\{\{(?P<table>[a-z ]+)(?:: (?P<columns>[a-z_=, ]+))?\}\}")
_COUNTS = frozenset(
    {
        *("runs", "kills", "executions", "values", "typed_errors", "unhandled"),
        *("launcher", "cleanup", "owner", "ended", "none", "left"),
        *("waits", "lines", "lost", "repeated", "disordered", "reported", "unneeded", "marked"),
        *("found", "alarms"),
    }
)
_MAXIMA = frozenset({"slowest"})
# Columns that identify a row, if its other texts differ each time; the last row is shown.
_IDENTITY_COLUMNS = {"hangs": ("fault",), "fuzz": ("target",), "diagnosis": ("problem", "cluster")}
_ORDER = (
    *("engine", "actor", "process", "end", "beside", "point"),
    *("cluster", "problem", "fault", "target", "call", "check"),
)
Row = Mapping[str, object]


def render_page(template: str, folder: Path, page: str, command: str) -> str:
    """Return the text of the page.

    In the template, `{{table: columns}}` is replaced by the rows of `table`; a column is a name, or `name=heading`.
    `{{table}}` is replaced by one row as a list of names and values. A sentence before each table states its name and
    its measurement: commit, date, machine and command.

    Args:
        template: text of the template.
        folder: folder that was passed to `pytest --evidence` and to the soak test.
        page: present text of the page, whose tables are kept if the folder has no rows for them.
        command: command that measures the page.
    """

    def fill(place: re.Match[str]) -> str:
        table, columns = place["table"], place["columns"]
        found = _combine_rows(read_rows(folder, table), _IDENTITY_COLUMNS.get(table, ()))
        if not found:
            present = re.search(rf"^Results of \"{table}\", .*\n\n(\|.*\n?)+", page, re.MULTILINE)
            return present[0].rstrip("\n") if present else "Not measured."
        measured = f'Results of "{table}", {describe_measurement(command)}:\n\n'
        if columns:
            pairs = [column.partition("=") for column in columns.split(", ")]
            lines = [[_format_value(row.get(name, "")) for name, _, _ in pairs] for row in found]
            return measured + markdown_table([heading or name.replace("_", " ") for name, _, heading in pairs], lines)
        return measured + markdown_table(["", ""], [(name, _format_value(value)) for name, value in found[-1].items()])

    return _PLACEHOLDER.sub(fill, template)


def _combine_rows(measured: Iterable[Row], identity: Collection[str]) -> list[Row]:
    """Return the rows with counts added up and maxima, sorted because tests run in parallel.

    Rows are combined if they differ only in their counts, or if they agree in the columns `identity`.
    """
    found: dict[tuple[object, ...], dict[str, object]] = {}
    for row in measured:
        counts = _COUNTS & row.keys()
        key = tuple(
            value for name, value in row.items() if (name in identity if identity else name not in counts | {"test"})
        )
        known = found.get(key, {})
        found[key] = {**row, **{name: int(str(row[name])) + int(str(known.get(name, 0))) for name in counts}}
        found[key] |= {
            name: max(float(str(each[name])) for each in (row, known) if name in each) for name in _MAXIMA & row.keys()
        }
    return sorted(found.values(), key=lambda row: [str(row[name]) for name in _ORDER if name in row])


def _format_value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    _, name, folder = sys.argv
    target = _PAGES / f"{name}.md"
    present = target.read_text(encoding="utf-8") if target.exists() else ""
    template = (_HERE / f"{name}.md").read_text(encoding="utf-8")
    target.write_text(render_page(template, Path(folder), present, f"make {name}"), encoding="utf-8")
