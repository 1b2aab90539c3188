"""The folders of the environments: where they are, when they are ready, who uses them.

Two kinds of locks (`flock`) exist, which the kernel releases when their process ends, however it ends. A process that
creates or deletes an environment holds the exclusive lock of the file `FOLDER.lock`. A cluster that runs containers in
an environment holds a shared lock of the marker in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainjob_local.cache_folder import cache_folder
from trainjob_local.environments.errors import EnvironmentInUse
from trainjob_local.environments.locks import EnvironmentLock

__all__ = [
    "Environment",
    "delete_environment",
    "environment_folder",
    "environments_folder",
    "find_environment",
    "hold_creation_lock",
    "list_environments",
    "mark_ready",
    "select_python",
    "use_environment",
]

_MARKER = ".trainjob-environment.json"


@dataclass(frozen=True)
class Environment:
    """An environment in the cache directory.

    Attributes:
        name: name of its lock.
        path: its folder.
        ready: whether it was created completely.
    """

    name: str
    path: Path
    ready: bool

    def measure_bytes(self) -> int:
        """Return the size of its files, including those that it shares with uv's cache."""
        return sum((Path(folder) / name).lstat().st_size for folder, _, names in os.walk(self.path) for name in names)


def environments_folder() -> Path:
    """Return the folder of all environments, in the cache directory of the user."""
    return cache_folder() / "environments"


def environment_folder(lock: EnvironmentLock) -> Path:
    """Return the folder of a lock's environment, whether it exists or not."""
    python = (sys.base_prefix, sys.implementation.cache_tag) if _fits(lock) else (select_python(lock),)
    facts = json.dumps([lock.requirements.read_text(), lock.packages, platform.machine(), python])
    return environments_folder() / f"{lock.name}-{hashlib.sha256(facts.encode()).hexdigest()[:12]}"


def select_python(lock: EnvironmentLock) -> str:
    """Return the Python of a lock's environment, as an argument of uv.

    It is this interpreter if it is new enough, otherwise one that uv finds.
    """
    return sys.executable if _fits(lock) else f">={lock.min_python}"


def find_environment(lock: EnvironmentLock) -> Path | None:
    """Return the folder of a lock's environment if it is ready, else None."""
    folder = environment_folder(lock)
    return folder if _is_ready(folder) else None


@contextlib.contextmanager
def use_environment(path: Path) -> Iterator[bool]:
    """Keep a ready environment from being deleted during the block.

    Yields:
        Whether the environment is ready; False if it was deleted or is incomplete.
    """
    with contextlib.ExitStack() as stack:
        try:
            marker = stack.enter_context((path / _MARKER).open())
        except FileNotFoundError:
            yield False
            return
        fcntl.flock(marker, fcntl.LOCK_SH)
        yield _is_ready(path)


@contextlib.contextmanager
def hold_creation_lock(folder: Path, on_wait: Callable[[], None]) -> Iterator[int]:
    """Hold the lock for the creation of an environment; wait if another process holds it.

    Args:
        folder: folder of the environment.
        on_wait: function that is called before a wait.

    Yields:
        The file descriptor of the lock. A child process that inherits it holds the lock until it ends.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        with _open_lock(folder) as file:
            if not _try_lock(file):
                on_wait()
                fcntl.flock(file, fcntl.LOCK_EX)
            if _is_current(file):  # else the environment was deleted during the wait, and the file with it
                yield file.fileno()
                return


def mark_ready(folder: Path, lock: EnvironmentLock) -> None:
    """Write the marker of a complete environment."""
    new = folder / f"{_MARKER}.new"
    new.write_text(json.dumps({"name": lock.name, "packages": lock.packages}))
    new.replace(folder / _MARKER)


def list_environments() -> list[Environment]:
    """Return all environments in the cache directory, also incomplete ones, sorted by folder."""
    root = environments_folder()
    folders = sorted(path for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    return [Environment(path.name.rpartition("-")[0], path, _is_ready(path)) for path in folders]


def delete_environment(environment: Environment) -> None:
    """Delete an environment.

    Raises:
        EnvironmentInUse: a cluster runs containers in it, or a process creates it.
    """
    folder = environment.path
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(_open_lock(folder))
        if not _try_lock(lock):
            raise EnvironmentInUse(folder)
        with contextlib.suppress(FileNotFoundError):
            marker = stack.enter_context((folder / _MARKER).open())
            if not _try_lock(marker):
                raise EnvironmentInUse(folder)
            (folder / _MARKER).unlink()  # first, because a deletion that is interrupted leaves no ready environment
        shutil.rmtree(folder, ignore_errors=True)
        _lock_path(folder).unlink(missing_ok=True)


def _fits(lock: EnvironmentLock) -> bool:
    return sys.version_info[:2] >= tuple(int(part) for part in lock.min_python.split("."))


def _is_ready(folder: Path) -> bool:
    # The interpreter is a link, which is broken if the Python was uninstalled.
    return (folder / _MARKER).exists() and (folder / "bin" / "python").exists()


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _open_lock(folder: Path) -> IO[str]:
    return _lock_path(folder).open("a")


def _is_current(file: IO[str]) -> bool:
    """Return whether an open file is still the one at its path."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), Path(file.name).stat())
    return False


def _try_lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
