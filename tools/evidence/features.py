"""Generator of docs/evidence/features.md from features.md and test results.

Usage: features.py DIR
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from tests.support.evidence import read_rows
from tests.support.markdown import table

_HERE = Path(__file__).resolve().parent
_PAGE = _HERE.parents[1] / "docs" / "evidence" / "features.md"
_CELLS = ("Airflow example", "KFP example", "control plane", "real run")
_ROWS = (
    "Python function",
    "container",
    "TorchTune models",
    "TorchTune recipes",
    "TRL",
    "resume",
    "PyTorch DDP/FSDP",
    "XGBoost",
    "JAX",
    "MPI",
    "Hub initializer",
    "S3 initializer",
    "data cache",
    "export",
    "model registry",
    "Kueue",
    "gang scheduling",
    "failure policies",
    "runtimes",
)
_NO_DATA_CACHE = "needs the images and pods of the data cache, which a laptop cluster does not have"
# Why a cell has no test; a cell with neither a test nor a reason fails the command.
_REASONS = {
    ("resume", "Airflow example"): "on by default in every fine-tuning in a workspace",
    ("resume", "KFP example"): "on by default in every fine-tuning in a workspace",
    ("data cache", "Airflow example"): _NO_DATA_CACHE,
    ("data cache", "KFP example"): _NO_DATA_CACHE,
    ("data cache", "real run"): _NO_DATA_CACHE,
    ("Kueue", "real run"): "a laptop cluster does not have Kueue",
    ("gang scheduling", "real run"): "a laptop cluster does not have a gang scheduler",
}


def render_page(folder: Path) -> str:
    """Return the text of the page.

    Args:
        folder: folder that was passed to `pytest --evidence`.

    Raises:
        SystemExit: a cell has neither a test nor a reason, or a test names an unknown row or cell.
    """
    shown = defaultdict(set)
    for row in read_rows(folder, "features"):
        shown[row["row"], row["cell"]].add(str(row["test"]))
    known = {(row, cell) for row in _ROWS for cell in _CELLS}
    if wrong := sorted(shown.keys() - known):
        raise SystemExit(f"tests name unknown rows or cells: {wrong}")
    if empty := sorted(known - shown.keys() - _REASONS.keys()):
        raise SystemExit(f"cells without a test and without a reason: {empty}")
    lines = [[row, *(_format_links(shown[row, cell]) or _REASONS[row, cell] for cell in _CELLS)] for row in _ROWS]
    text = (_HERE / "features.md").read_text(encoding="utf-8")
    return text.replace("{{features}}", table(["Feature", *_CELLS], lines))


def _format_links(names: set[str]) -> str:
    """Format links to the tests; tests that differ only in their parameters get one link."""
    tests = sorted({tuple(name.partition("[")[0].split("::")) for name in names})
    return ", ".join(f"[{test.removeprefix('test_').replace('_', ' ')}](../../{path})" for path, *_, test in tests)


if __name__ == "__main__":
    _PAGE.write_text(render_page(Path(sys.argv[1])), encoding="utf-8")
