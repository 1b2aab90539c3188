"""Generator of docs/evidence/migration.md from migration.md and the judged jobs of the tests."""

from __future__ import annotations

from pathlib import Path

from tests.support.markdown import table as markdown_table
from tests.unit.migrate.judged_jobs import JOBS, Outcome, count_outcomes

_HERE = Path(__file__).resolve().parent
PAGE = _HERE.parents[1] / "docs" / "evidence" / "migration.md"
_SETS = {
    "pytorch": "PyTorchJobs",
    "mpi": "MPIJobs",
    "other-kinds": "other kinds, old API versions, templates, and jobs inside other objects",
    "aside": "held out, of all kinds",
}


def render_page() -> str:
    """Convert all judged jobs, and return the page with the counted outcomes."""
    rows = []
    for folder, title in _SETS.items():
        names = [name for name in JOBS if name.startswith(f"{folder}/")]
        counts = count_outcomes(names)
        rows.append([title, str(len(names)), *(str(counts[outcome]) for outcome in Outcome)])
    template = (_HERE / "migration.md").read_text(encoding="utf-8")
    table = markdown_table(["Jobs", "number", *(outcome.value for outcome in Outcome)], rows)
    return template.replace("{{jobs}}", table)


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
