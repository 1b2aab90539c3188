"""The program uv: the image's, or one that pip installs into a temporary folder."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

from trainjob.programs.code.failure import PackageFailure
from trainjob.programs.code.pip_settings import read_pip_settings, redact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["UV_VERSION", "UvProgram", "read_uv_variables"]

UV_VERSION = "0.13.9"
_OUTPUT_LINES = 20  # of a failed program, in the log
_REASON_LINES = 5  # in the reason of the failure
_MAX_REASON = 400  # characters


def read_uv_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of uv, with pip's settings of package indexes."""
    return {
        "UV_LINK_MODE": "copy",  # uv's cache and the workspace are different file systems
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
        **variables,
        **read_pip_settings(variables),
    }


class UvProgram:
    """The program uv, as a context manager. It is found, or installed, when it first runs.

    Args:
        variables: environment of uv. A temporary cache is added if the home folder cannot be written.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)
        self._words: list[str] = []

    def __enter__(self) -> UvProgram:
        self._temporary = tempfile.mkdtemp(prefix="trainjob-uv-")
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._temporary, ignore_errors=True)

    def run(self, words: Sequence[str], text: str = "", **variables: str) -> None:
        """Run uv in the working directory, with a text as its input.

        Raises:
            PackageFailure: uv failed, or pip could not install it; the message has the last lines of its output.
        """
        self.find()
        _run("uv", [*self._words, *words], {**self._variables, **variables}, text)

    def find(self) -> None:
        """Find uv, or install it with pip.

        Raises:
            PackageFailure: the image has no uv, and pip could not install it.
        """
        if self._words:
            return
        if "UV_CACHE_DIR" not in self._variables and not _is_writable(self._variables.get("XDG_CACHE_HOME") or "~"):
            self._variables["UV_CACHE_DIR"] = f"{self._temporary}/cache"
        if program := shutil.which("uv", path=self._variables.get("PATH")):
            self._words = [program]
        elif importlib.util.find_spec("uv"):
            self._words = [sys.executable, "-m", "uv"]
        else:
            self._words = [_install_uv(f"{self._temporary}/uv")]


def _install_uv(folder: str) -> str:
    """Install uv into a folder, and return the path of the program."""
    print(f"code: the image has no uv, installing uv {UV_VERSION} with pip", flush=True)
    options = ["--quiet", "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--root-user-action=ignore"]
    _run("pip", [sys.executable, "-m", "pip", "install", *options, "--target", folder, f"uv=={UV_VERSION}"], os.environ)
    return f"{folder}/bin/uv"


def _run(name: str, command: Sequence[str], variables: Mapping[str, str], text: str = "") -> None:
    done = subprocess.run(
        command,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        env=dict(variables),
        encoding="utf-8",
        errors="replace",
    )
    if not done.returncode:
        return
    lines = [redact(line) for line in done.stdout.splitlines() if line.strip()]
    print("\n".join(lines[-_OUTPUT_LINES:]), file=sys.stderr, flush=True)
    reason = " ".join(" ".join(lines[-_REASON_LINES:]).split())
    raise PackageFailure(f"{name} ended with {done.returncode}: {reason[-_MAX_REASON:]}")


def _is_writable(folder: str) -> bool:
    """Return whether a file can be created; permissions do not show a read-only file system."""
    try:
        with tempfile.TemporaryFile(dir=os.path.expanduser(folder)):  # noqa: PTH111
            return True
    except OSError:
        return False
