"""Generator of docs/evidence/features.md from features.md and test results.

Usage: features.py DIR. If DIR has no rows, the page keeps its cells, for example after an edit of the template.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.support.evidence import read_rows
from tests.support.markdown import table
from tools.evidence.measurement import UNRECORDED, describe_measurement
from trainjob.framework_modules import list_own_frameworks
from trainjob.spec.tracking import TRACKERS

_HERE = Path(__file__).resolve().parent
_PAGE = _HERE.parents[1] / "docs" / "evidence" / "features.md"
_CELLS = ("Airflow example", "KFP example", "control plane", "real run")
# Rows of each framework and of each tracker; one that has no row here fails the command.
_FRAMEWORKS = {
    "torchtune": ("TorchTune models", "TorchTune recipes"),
    "trl": ("TRL",),
    "llamafactory": ("LLaMA-Factory",),
    "unsloth": ("Unsloth",),
}
_TRACKERS = {"mlflow": "MLflow", "wandb": "Weights & Biases", "tensorboard": "TensorBoard"}
_OTHER_ROWS = (
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
_ROWS = (
    "Python function",
    "container",
    *(row for rows in _FRAMEWORKS.values() for row in rows),
    *_OTHER_ROWS,
    *_TRACKERS.values(),
)
_NOT_TESTED = "not tested"
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
    ("LLaMA-Factory", "control plane"): _NOT_TESTED,
    ("Unsloth", "Airflow example"): _NOT_TESTED,
    ("Unsloth", "KFP example"): _NOT_TESTED,
    ("Unsloth", "control plane"): _NOT_TESTED,
    ("Unsloth", "real run"): "needs a GPU",
    ("MLflow", "control plane"): _NOT_TESTED,
    ("Weights & Biases", "Airflow example"): _NOT_TESTED,
    ("Weights & Biases", "KFP example"): _NOT_TESTED,
    ("Weights & Biases", "control plane"): _NOT_TESTED,
    ("TensorBoard", "Airflow example"): _NOT_TESTED,
    ("TensorBoard", "KFP example"): _NOT_TESTED,
    ("TensorBoard", "control plane"): _NOT_TESTED,
}


def render_page(folder: Path, page: str) -> str:
    """Return the text of the page.

    Args:
        folder: folder that was passed to `pytest --evidence`.
        page: present text of the page.

    Raises:
        SystemExit: a cell has neither a test nor a reason, a test names an unknown row or cell, or a framework or a
            tracker has no row.
    """
    check_rows(list_own_frameworks(), TRACKERS)
    template = (_HERE / "features.md").read_text(encoding="utf-8")
    rows = read_rows(folder, "features")
    if not rows:
        return _with_kept_cells(template, page)
    shown = defaultdict(set)
    for row in rows:
        shown[row["row"], row["cell"]].add(str(row["test"]))
    known = {(row, cell) for row in _ROWS for cell in _CELLS}
    if wrong := sorted(shown.keys() - known):
        raise SystemExit(f"tests name unknown rows or cells: {wrong}")
    if empty := sorted(known - shown.keys() - _REASONS.keys()):
        raise SystemExit(f"cells without a test and without a reason: {empty}")
    lines = [[row, *(_format_links(shown[row, cell]) or _REASONS[row, cell] for cell in _CELLS)] for row in _ROWS]
    return _fill(template, describe_measurement("make reliability"), lines)


def check_rows(frameworks: Iterable[str], trackers: Iterable[str]) -> None:
    """Stop with an error if a framework or a tracker has no row, or a row has neither."""
    for names, rows in ((frameworks, _FRAMEWORKS), (trackers, _TRACKERS)):
        if different := sorted({*names} ^ rows.keys()):
            raise SystemExit(f"correct the rows of tools/evidence/features.py: {', '.join(different)}")


def _fill(template: str, measurement: str, lines: list[list[str]]) -> str:
    """Return the template with its measurement and its table."""
    text = template.replace("{{measurement}}", measurement)
    return text.replace("{{features}}", table(["Feature", *_CELLS], lines))


def _with_kept_cells(template: str, page: str) -> str:
    """Return the page with its present cells and measurement."""
    split = [re.split(r"\s*(?<!\\)\|\s*", line)[1:-1] for line in page.splitlines() if line.startswith("| ")]
    kept = {cells[0]: cells[1:] for cells in split}
    measured = re.search(r"^Measured: (.+)\.$", page, re.MULTILINE)
    lines = [
        [row, *(kept.get(row) or (_REASONS.get((row, cell), "not measured yet") for cell in _CELLS))] for row in _ROWS
    ]
    return _fill(template, measured[1] if measured else f"{UNRECORDED}, date not recorded, `make reliability`", lines)


def _format_links(names: set[str]) -> str:
    """Format links to the tests; tests that differ only in their parameters get one link."""
    tests = sorted({tuple(name.partition("[")[0].split("::")) for name in names})
    return ", ".join(f"[{test.removeprefix('test_').replace('_', ' ')}](../../{path})" for path, *_, test in tests)


if __name__ == "__main__":
    _PAGE.write_text(render_page(Path(sys.argv[1]), _PAGE.read_text(encoding="utf-8")), encoding="utf-8")
