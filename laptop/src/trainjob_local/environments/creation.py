"""Creation of environments."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from trainjob_local.environments.errors import EnvironmentNotCreated
from trainjob_local.environments.folders import (
    environment_folder,
    find_environment,
    hold_creation_lock,
    mark_ready,
    select_python,
)
from trainjob_local.environments.locks import EnvironmentLock, stock_locks
from trainjob_local.environments.torch_builds import CPU_TORCH_INDEX, require_cpu_torch, without_torch
from trainjob_local.environments.uv import Uv, UvFailed

__all__ = ["create_environment"]

_REACHABLE_SECONDS = 20.0
_NO_RETRIES = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "8", "UV_HTTP_CONNECT_TIMEOUT": "5"}


def create_environment(
    lock: EnvironmentLock,
    *,
    report: Callable[[str], None] | None = None,
    cpu_torch_index: str = CPU_TORCH_INDEX,
) -> Path:
    """Return the folder of a lock's environment, and create it if it is not ready.

    Processes that create the same environment at once wait for the first of them. An environment whose creation was
    interrupted is created again; uv's cache has its downloads. torch is a CPU build if the index that has them can be
    reached and `UV_TORCH_BACKEND` is not set to another backend.

    Args:
        lock: the packages.
        report: function that receives each line of uv's output; with None, the output goes to this process's standard
            error, with progress bars on a terminal.
        cpu_torch_index: URL of the index with CPU builds of torch.

    Raises:
        EnvironmentNotCreated: no suitable Python exists, the packages could not be downloaded, or the disk is full.
    """
    folder = environment_folder(lock)
    if find_environment(lock):
        return folder
    try:
        _create(lock, folder, report, cpu_torch_index)
    except (UvFailed, OSError) as error:
        raise EnvironmentNotCreated(lock.name, str(error), hint=_hint(lock, str(error))) from error
    return folder


def _create(lock: EnvironmentLock, folder: Path, report: Callable[[str], None] | None, cpu_torch_index: str) -> None:
    def report_wait() -> None:
        if report:
            report(f"waiting for another process that creates {folder}")

    with hold_creation_lock(folder, report_wait) as inherited:
        if find_environment(lock):  # the other process has created it
            return
        try:
            shutil.rmtree(folder, ignore_errors=True)  # a creation that was killed may have left incomplete packages
            _install(Uv(folder.parent, report, inherited), lock, folder, cpu_torch_index)
            mark_ready(folder, lock)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def _install(uv: Uv, lock: EnvironmentLock, folder: Path, cpu_torch_index: str) -> None:
    uv.run("venv", "--quiet", "--python", select_python(lock), folder)
    install = ("pip", "install", "--python", folder)
    requirements = lock.requirements
    if _install_cpu_torch(uv, lock, folder, cpu_torch_index):
        requirements = folder / "requirements.txt"
        requirements.write_text(without_torch(lock.requirements.read_text()))
    uv.run(*install, "--no-deps", "--require-hashes", "--requirements", requirements)
    if lock.packages:
        uv.run(*install, "--constraints", lock.requirements, *lock.packages)


def _install_cpu_torch(uv: Uv, lock: EnvironmentLock, folder: Path, index: str) -> bool:
    """Install the CPU build of torch, and return whether it was possible."""
    wanted = require_cpu_torch(lock.requirements.read_text())
    if not wanted or os.environ.get("UV_TORCH_BACKEND", "cpu") != "cpu":
        return False
    torch = folder / "torch.txt"
    torch.write_text(wanted)
    install = ("pip", "install", "--python", folder, "--no-deps", "--index", index, "--requirements", torch)
    # A dry run looks at the index with uv's own settings of proxies and certificates, and finds out whether it has a
    # build for this Python and machine.
    if not uv.succeeds(*install, "--dry-run", seconds=_REACHABLE_SECONDS, variables=_NO_RETRIES):
        return False
    try:
        uv.run(*install)
    except UvFailed:  # the index became unreachable; the builds of the lock work as well
        return False
    return True


def _hint(lock: EnvironmentLock, reason: str) -> str:
    if "No space left" in reason:
        advice = "free disk space, or set XDG_CACHE_HOME to a folder on another disk"
    elif "`uv venv" in reason:
        advice = f"install Python {lock.min_python} or newer"
    elif any(package in reason for package in lock.packages):  # the index has just answered for the locked packages
        names = " and ".join(lock.packages)
        advice = f"set UV_FIND_LINKS to a folder with wheels of {names}, if the package index does not have them"
    elif "`uv" in reason:
        advice = "check the connection to the package index; UV_DEFAULT_INDEX or PIP_INDEX_URL selects another index"
    else:
        advice = "set XDG_CACHE_HOME to a folder in which you can write"
    own = f"; or use an environment of your own: --environment {lock.name}=DIR" if lock.name in stock_locks() else ""
    return advice + own
