"""The table of conformance cases and back ends, which a run prints at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tools.evidence.measurement import describe_measurement

_CELL_TEXTS = {"passed": "yes", "failed": "NO", "differs": "differs", "skipped": "-"}
_RANK = ("failed", "differs", "skipped", "passed")


@dataclass
class Row:
    """One case, with its result on every back end."""

    title: str
    cells: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


class Report:
    """A pytest plugin that collects the results of the cases, and prints or writes the table."""

    def __init__(self, backends: list[str], file: str | None) -> None:
        self.backends, self.file = backends, Path(file) if file else None
        self.rows: dict[str, dict[str, Row]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a result; a parametrized case passes if all of its rows pass."""
        properties = dict(report.user_properties)
        if "backend" not in properties:
            return
        group, case = _parse_node_id(report.nodeid)
        row = self.rows.setdefault(group, {}).setdefault(case, Row(str(properties["title"])))
        backend, outcome = str(properties["backend"]), _outcome(report)
        if outcome is None:
            return
        known = row.cells.get(backend, "passed")
        row.cells[backend] = min(known, outcome, key=_RANK.index)
        if outcome in {"differs", "skipped"}:
            row.notes[backend] = _reason(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.rows:
            return
        terminalreporter.section("conformance")
        for line in self.to_text_lines():
            terminalreporter.write_line(line)
        if self.file:
            self.file.write_text(self.to_markdown(), encoding="utf-8")

    def to_text_lines(self) -> list[str]:
        """Return the lines of the table for a terminal."""
        widths = [max(8, len(name)) for name in self.backends]
        head = [name.rjust(width) for name, width in zip(self.backends, widths, strict=True)]
        result = ["  ".join([*head, ""])]
        for group, rows in sorted(self.rows.items()):
            result.append(f"-- {group}")
            for row in rows.values():
                cells = [_cell(row, name).rjust(width) for name, width in zip(self.backends, widths, strict=True)]
                result.append("  ".join([*cells, row.title]))
        return result

    def to_markdown(self) -> str:
        """Return the table as a page of the docs."""
        parts = [_HEAD.format(measurement=describe_measurement("make conformance"))]
        notes: list[str] = []
        for group, rows in sorted(self.rows.items()):
            parts.append(f"\n## {group.replace('_', ' ').capitalize()}\n")
            parts.append(f"| Case | {' | '.join(self.backends)} |")
            parts.append(f"|---|{'---|' * len(self.backends)}")
            for row in rows.values():
                cells = []
                for name in self.backends:
                    text = _cell(row, name)
                    if row.cells.get(name) == "differs":
                        notes.append(f"{row.title.removesuffix('.')} ({name}): {row.notes[name]}")
                        text += f" [{len(notes)}]"
                    cells.append(text)
                parts.append(f"| {row.title.replace('|', chr(92) + '|')} | {' | '.join(cells)} |")
        if notes:
            parts.append("\n## Known differences\n")
            parts += [f"{number}. {note}" for number, note in enumerate(notes, 1)]
        return "\n".join(parts) + "\n"


_HEAD = """# Conformance

Compare how TrainJobs behave on real control planes and on the laptop cluster, case by case. One suite,
`tests/conformance`, tests all of them; `make conformance` writes this page. `controlplane-X` is a real kube-apiserver,
kube-controller-manager and scheduler with JobSet and Trainer X.

Measured: {measurement}.

yes: as expected; differs: a known difference, explained at the end; -: this back end was not available; empty: the case
was not run on it. On Trainer 2.0, only the cases that are marked for it run; see the
[README](https://github.com/trainjob/trainjob/tree/main/tests/conformance) of the suite. On the other back ends, a case
does not run if its feature does not exist there."""


def _cell(row: Row, backend: str) -> str:
    return _CELL_TEXTS[row.cells[backend]] if backend in row.cells else ""


def _parse_node_id(nodeid: str) -> tuple[str, str]:
    file, _, test = nodeid.partition("::")
    return Path(file).stem.removeprefix("test_"), test.partition("[")[0]


def case_title(item: pytest.Item) -> str:
    """Return the text of a case's row: the first line of its docstring, or its name in words."""
    words = getattr(getattr(item, "function", None), "__doc__", None)
    if words:
        return str(words).strip().splitlines()[0]
    return item.name.partition("[")[0].removeprefix("test_").replace("_", " ")


def _outcome(report: pytest.TestReport) -> str | None:
    if hasattr(report, "wasxfail"):
        return "differs" if report.outcome == "skipped" else "failed"
    if report.outcome == "failed":
        return "failed"
    if str(report.outcome) == "rerun":  # the last run of a test that CI repeats decides
        return None
    if report.when == "call":
        return report.outcome
    return "skipped" if report.outcome == "skipped" else None


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
