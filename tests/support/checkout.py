"""A copy of this checkout, as a user has it after `git clone`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

__all__ = ["copy_checkout"]

ROOT = Path(__file__).resolve().parents[2]


def copy_checkout(folder: Path) -> Path:
    """Copy the files that git tracks or would track into a folder, and return it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder
