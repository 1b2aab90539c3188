"""Write the files that are generated from the classes in `trainjob.spec`.

Run it with `make reference`. A test fails if a file is not up to date.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.parameters import components, operators, page, readmes, trainjob_fields

ROOT = Path(__file__).resolve().parents[2]


def render_files() -> dict[Path, str]:
    """Return the text of each generated file by its path in the repository."""
    modules = {operators.PATH: operators.render_operators(), **components.render_components()}
    return {
        **{path: _format(path, text) for path, text in modules.items()},
        **readmes.render_readmes(),
        page.PATH: page.render_page(),
        trainjob_fields.PATH: trainjob_fields.render_page(),
    }


def _format(path: Path, text: str) -> str:
    """Return the text of a module as `ruff format` writes it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(ROOT / path), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout


if __name__ == "__main__":
    for path, text in render_files().items():
        (ROOT / path).write_text(text, "utf-8")
