"""Installation of the example framework `line_framework`, as a package with an entry point."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.uv import UV

SOURCE = Path(__file__).with_name("line_framework")


def install_line_framework(folder: Path) -> Path:
    """Install the package without its dependencies, and return the folder for `sys.path`."""
    command = [UV, "pip", "install", "--quiet", "--no-deps", "--target", str(folder), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return folder
