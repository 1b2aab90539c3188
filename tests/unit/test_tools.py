"""Tests that each tool can be imported, and those of the generators of evidence that need no cluster."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from tools.evidence import features

ROOT = Path(__file__).resolve().parents[2]
TOOLS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tools").rglob("*.py") if "dags" not in path.parts)
OWN = ("tools", "tests", "trainjob", "trainjob_demo", "trainjob_local", "trainjob_migrate")


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_can_be_imported(tool):
    """A tool that needs a package of another environment is skipped; `make types` checks it there."""
    try:
        runpy.run_path(str(ROOT / tool), run_name="tool")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN:
            raise
        pytest.skip(f"needs the package {error.name}")


def test_each_feature_has_a_test_or_a_reason(tmp_path):
    cells = [(row, cell) for row in features._ROWS for cell in features._CELLS if (row, cell) not in features._REASONS]
    lines = [json.dumps({"row": row, "cell": cell, "test": "tests/a.py::test_it_runs[x]"}) for row, cell in cells]
    (tmp_path / "features.jsonl").write_text("\n".join(lines) + "\n")
    page = features.render_page(tmp_path, "")
    assert page.count("[it runs](../../tests/a.py)") == len(cells)
    (tmp_path / "features.jsonl").write_text("\n".join(lines[1:]) + "\n")
    with pytest.raises(SystemExit, match="cells without a test"):
        features.render_page(tmp_path, "")
