"""Commands that the demo prints at its end."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from trainjob_demo.paths import display_path

__all__ = ["format_next_steps"]


def format_next_steps(export: Path, workflow: Path, state: Path) -> str:
    """Return three lines, each with a command that works in the current folder.

    Args:
        export: folder of the exported model.
        workflow: file of the DAG or the pipeline.
        state: folder of the laptop cluster.
    """
    commands = {
        "the model": ("ls", display_path(export)),
        "the workflow": ("cat", display_path(workflow)),
        "the TrainJobs": (_program(), "local", "up", "--state", display_path(state)),
    }
    return "\n".join(f"{what + ':':<15}{shlex.join(map(str, words))}" for what, words in commands.items())


def _program() -> str:
    """Return the word with which a shell starts the program `trainjob` of this environment."""
    program = Path(sys.executable).with_name("trainjob")
    return "trainjob" if shutil.which("trainjob") == str(program) else str(display_path(program))
