"""Generator of docs/evidence/models.md from the rows that tests/integration/trl/test_families.py recorded.

Usage: models.py DIR
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.evidence import read_rows
from tests.support.markdown import table
from trainjob.frameworks.trl.argument_table import TRL_VERSIONS

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs" / "evidence" / "models.md"
_STEPS = ("fetch", "SFT, all weights", "SFT, LoRA", "DPO, LoRA", "merge", "export", "load", "logits")
_TEXT = """# Families of models

This page shows which families of models pass each step. Each row is a tiny model of the family with random weights, which
transformers has saved. The laptop's hub serves it, and the modules of the pods fetch, check, train and export it. A value in
parentheses is the largest difference of the logits between the base model with its adapter and the merged or exported model; the
logits are about 1.

TRL {version}, on a CPU, commit `{commit}`, [test](../../{test}). Written by `make models`.

{table}

What cannot be trained is refused before torch is loaded, with the reason: models with an encoder, such as T5 and BERT; models that
only compute embeddings; quantized models without LoRA, or with a merge, except in MXFP4; models that read images if the image lacks
pillow or torchvision. [TRL](../reference/trl.md#lora) has the list. The same test compares these verdicts with the configurations of
33 popular repositories ([test](../../tests/unit/frameworks/test_architecture.py)).
"""


def render_page(folder: Path, commit: str) -> str:
    """Return the text of the page.

    Args:
        folder: folder that was passed to `pytest --evidence`.
        commit: the commit of the tests.

    Raises:
        SystemExit: the folder has no rows of the test.
    """
    rows = read_rows(folder, "models")
    if not rows:
        raise SystemExit(f"{folder} has no rows of models: run the test with --evidence {folder}")
    lines = [[str(row["family"]), *(str(row.get(step, row.get("error", "-"))) for step in _STEPS)] for row in rows]
    test = str(rows[0]["test"]).partition("::")[0]
    shown = table(["Family", *(step[0].upper() + step[1:] for step in _STEPS)], lines)
    return _TEXT.format(version=TRL_VERSIONS[-1], commit=commit, test=test, table=shown)


if __name__ == "__main__":
    _command = ["git", "rev-parse", "--short", "HEAD"]
    _commit = subprocess.run(_command, cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()
    _PAGE.write_text(render_page(Path(sys.argv[1]), _commit), encoding="utf-8")
