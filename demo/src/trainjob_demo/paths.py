"""The demo's folder, its lock, and how paths are shown."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from trainjob.errors import InvalidSpec, Problem
from trainjob_demo.errors import DemoError
from trainjob_local.cache_folder import cache_folder

__all__ = ["default_folder", "display_path", "exclusive_lock", "find_folder", "find_workflow"]


def default_folder(command: str) -> Path:
    """Return the folder for a command's files in the cache directory of the user.

    Args:
        command: `demo` or `airflow`.

    Raises:
        DemoError: this user has no home folder.
    """
    try:
        return cache_folder() / command
    except RuntimeError:
        raise DemoError("this user has no home folder", hint="name a folder for its files: --state DIR") from None


def find_folder(folder: Path) -> Path:
    """Return the absolute path of the folder with the DAGs of the user.

    Raises:
        InvalidSpec: the folder does not exist.
    """
    if not folder.is_dir():
        raise InvalidSpec(Problem("DAGS", str(folder), "name an existing folder with the files of DAGs"))
    return folder.absolute()


def display_path(path: Path) -> Path:
    """Return a path relative to the current folder if it is below it."""
    with contextlib.suppress(OSError):  # the current folder was deleted
        if path.is_relative_to(Path.cwd()):
            return path.relative_to(Path.cwd())
    return path


def find_workflow(file: Path) -> Path:
    """Return the absolute path of a workflow of the user.

    Args:
        file: Python file of a DAG or a pipeline.

    Raises:
        InvalidSpec: the file does not exist.
    """
    if not file.is_file():
        raise InvalidSpec(Problem("--workflow", str(file), "name the Python file of a DAG or a pipeline"))
    return file.absolute()


@contextlib.contextmanager
def exclusive_lock(folder: Path, engine: str) -> Iterator[None]:
    """Create a command's folder, and allow only one process with this engine in it at a time.

    Args:
        folder: folder for the files of the command.
        engine: name of the engine.

    Raises:
        DemoError: another process runs the engine in this folder, or the folder is not writable.
    """
    lock = folder / f"{engine}.lock"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            held = stack.enter_context(lock.open("w"))
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(
                f"another process is already running in this folder: it holds the lock {display_path(lock)}",
                hint="wait until it has ended, or start the command `trainjob` with another folder: --state DIR",
            ) from None
        except OSError as error:
            raise DemoError(f"the folder cannot be used: {error}", hint="name another folder: --state DIR") from None
        yield
