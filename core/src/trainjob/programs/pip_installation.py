"""Installation of locked packages in a pod."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["install"]

_OUTPUT_LINES = 20


def install(title: str, requirements: Sequence[str], folder: Path, source: Sequence[str] = ()) -> str:
    """Install packages into a folder with pip, which checks their hashes.

    Args:
        title: name of what is installed, for the error.
        requirements: lines of a requirements file, each with a version and hashes.
        folder: folder for the packages; it does not exist yet.
        source: pip's options for the source of the packages; empty means pip's default.

    Returns:
        pip's exit code and the last lines of its output; empty if the packages are installed.

    Raises:
        OSError: the folder cannot be written.
    """
    folder.mkdir(parents=True)
    file = folder.with_name("requirements.txt")
    file.write_text("\n".join(requirements), encoding="utf-8")
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-cache-dir", "--quiet"]
    command = [sys.executable, "-m", "pip", "install", *options, *source, "--target", str(folder), "-r", str(file)]
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"},
    )
    if not done.returncode:
        return ""
    lines = "\n".join(done.stdout.splitlines()[-_OUTPUT_LINES:])
    return f"pip ended with {done.returncode} for {title}\n{lines}"
