"""Generator of docs/evidence/models.md from the rows that two tests of tests/integration/trl recorded.

Usage: models.py DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.evidence import read_rows
from tests.support.markdown import table
from tools.evidence.measurement import describe_measurement
from trainjob.frameworks.trl.argument_table import TRL_VERSIONS

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_PAGE = _ROOT / "docs" / "evidence" / "models.md"
_STEPS = ("fetch", "SFT, all weights", "SFT, LoRA", "DPO, LoRA", "merge", "export", "load", "logits")


def render_page(folder: Path, measured: str) -> str:
    """Return the text of the page.

    Args:
        folder: folder that was passed to `pytest --evidence`.
        measured: commit, date, machine and command of the tests.

    Raises:
        SystemExit: the folder has no rows of the test.
    """
    rows, architectures = read_rows(folder, "models"), read_rows(folder, "architectures")
    if not rows or not architectures:
        raise SystemExit(f"{folder} has no rows of models or architectures: run the tests with --evidence {folder}")
    lines = [[str(row["family"]), *(str(row.get(step, row.get("error", "-"))) for step in _STEPS)] for row in rows]
    test = str(rows[0]["test"]).partition("::")[0]
    shown = table(["Family", *(step[0].upper() + step[1:] for step in _STEPS)], lines)
    types = {
        result: sorted(str(row["type"]) for row in architectures if row["result"] == result)
        for result in ("ok", "refused", "not built")
    }
    text = (_HERE / "models.md").read_text(encoding="utf-8")
    return text.format(
        version=TRL_VERSIONS[-1],
        measured=measured,
        test=test,
        table=shown,
        merged=len(types["ok"]),
        types=", ".join(types["ok"]),
        refused=", ".join(types["refused"]),
        not_built=", ".join(types["not built"]),
        architectures_test=str(architectures[0]["test"]).partition("::")[0],
    )


if __name__ == "__main__":
    _PAGE.write_text(render_page(Path(sys.argv[1]), describe_measurement("make models")), encoding="utf-8")
