"""The program uv, and the Pythons that it finds."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

UV = shutil.which("uv") or str(Path(__file__).resolve().parents[2] / ".venv" / "uv" / "bin" / "uv")


def find_python(version: str) -> str | None:
    """Return the path of an installed Python, or None."""
    command = [UV, "python", "find", "--no-project", "--system", "--no-python-downloads", version]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None
