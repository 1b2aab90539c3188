"""Commands that the demo prints at its end."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from trainjob_demo.paths import display_path

__all__ = ["format_next_steps"]

_TUTORIAL = "https://github.com/trainjob/trainjob/blob/main/docs/tutorials/laptop.md"


def format_next_steps(export: Path | None, workflow: Path, state: Path) -> str:
    """Return commands that work in the current folder, and the tutorial's address.

    Args:
        export: folder of the exported model; None if there is none.
        workflow: file of the DAG or the pipeline.
        state: folder of the laptop cluster.
    """
    commands = {
        **({"the model": ("ls", display_path(export))} if export else {}),
        "the workflow": ("cat", display_path(workflow)),
        "the TrainJobs": (_program(), "local", "up", "--state", display_path(state)),
    }
    lines = [f"{what + ':':<15}{shlex.join(map(str, words))}" for what, words in commands.items()]
    return "\n".join([*lines, f"{'next:':<15}{_TUTORIAL}"])


def _program() -> str:
    """Return the word with which a shell starts the program `trainjob` of this environment."""
    program = Path(sys.executable).with_name("trainjob")
    return "trainjob" if shutil.which("trainjob") == str(program) else str(display_path(program))
