"""The back end x case table at the end of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

_CELL_TEXTS = {"passed": "yes", "failed": "NO", "differs": "differs", "skipped": "-"}
_RANK = ("failed", "differs", "skipped", "passed")


@dataclass
class Row:
    """One case on every back end."""

    title: str
    cells: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)


class Report:
    """Collects what each case did on each back end; prints it, and writes it where asked."""

    def __init__(self, backends: list[str], file: str | None) -> None:
        self.backends, self.file = backends, Path(file) if file else None
        self.rows: dict[str, dict[str, Row]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A case with several rows of data counts as passed when all of them passed."""
        properties = dict(report.user_properties)
        if "backend" not in properties:
            return
        room, case = _parse_node_id(report.nodeid)
        row = self.rows.setdefault(room, {}).setdefault(case, Row(str(properties["title"])))
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
        """The table for a terminal."""
        widths = [max(8, len(name)) for name in self.backends]
        head = [name.rjust(width) for name, width in zip(self.backends, widths, strict=True)]
        result = ["  ".join([*head, ""])]
        for room, rows in sorted(self.rows.items()):
            result.append(f"-- {room}")
            for row in rows.values():
                cells = [_cell(row, name).rjust(width) for name, width in zip(self.backends, widths, strict=True)]
                result.append("  ".join([*cells, row.title]))
        return result

    def to_markdown(self) -> str:
        """The table as a page of the docs."""
        parts = [_HEAD]
        notes: list[str] = []
        for room, rows in sorted(self.rows.items()):
            parts.append(f"\n## {room.replace('_', ' ').capitalize()}\n")
            parts.append(f"| Case | {' | '.join(self.backends)} |")
            parts.append(f"|---|{'---|' * len(self.backends)}")
            for row in rows.values():
                cells = []
                for name in self.backends:
                    text = _cell(row, name)
                    if row.cells.get(name) == "differs":
                        notes.append(f"{row.title} ({name}): {row.notes[name]}")
                        text += f" [{len(notes)}]"
                    cells.append(text)
                parts.append(f"| {row.title.replace('|', chr(92) + '|')} | {' | '.join(cells)} |")
        if notes:
            parts.append("\n## Known differences\n")
            parts += [f"{number}. {note}" for number, note in enumerate(notes, 1)]
        return "\n".join(parts) + "\n"


_HEAD = """# Conformance

What TrainJobs do, asked of real clusters and of the laptop cluster by one suite, `tests/conformance`;
`make conformance` writes this page. `controlplane-X` is a real kube-apiserver, kube-controller-manager, scheduler,
JobSet and Trainer X.

yes: as expected; differs: known to differ, see the notes; -: this back end was not there; empty: the case says nothing
about it."""


def _cell(row: Row, backend: str) -> str:
    return _CELL_TEXTS[row.cells[backend]] if backend in row.cells else ""


def _parse_node_id(nodeid: str) -> tuple[str, str]:
    file, _, test = nodeid.partition("::")
    return Path(file).stem.removeprefix("test_"), test.partition("[")[0]


def case_title(item: pytest.Item) -> str:
    """A case's row: the first line of its docstring, or its name in words."""
    words = getattr(getattr(item, "function", None), "__doc__", None)
    if words:
        return str(words).strip().splitlines()[0].removesuffix(".")
    return item.name.partition("[")[0].removeprefix("test_").replace("_", " ")


def _outcome(report: pytest.TestReport) -> str | None:
    if hasattr(report, "wasxfail"):
        return "differs" if report.outcome == "skipped" else "failed"
    if report.outcome == "failed":
        return "failed"
    if str(report.outcome) == "rerun":  # what CI runs once more counts by its last run
        return None
    if report.when == "call":
        return report.outcome
    return "skipped" if report.outcome == "skipped" else None


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return str(report.wasxfail)
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
