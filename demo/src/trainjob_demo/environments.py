"""The Python environments of `trainjob demo` and `trainjob airflow`.

They are created on first use from locks in the wheels, unless the user names existing ones.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from trainjob.errors import InvalidSpec, Problem
from trainjob_demo.announcement import format_announcement
from trainjob_demo.errors import DemoError
from trainjob_local.environments import (
    EnvironmentLock,
    create_environment,
    environments_folder,
    find_environment,
    stock_locks,
    use_environment,
)

__all__ = ["open_environments", "parse_environments", "select_locks"]

_REQUIREMENTS = Path(__file__).parent / "requirements"


def select_locks(names: Sequence[str]) -> Mapping[str, EnvironmentLock]:
    """Return the locks of environments by name.

    Args:
        names: names of the laptop cluster's environments, `airflow` or `kfp`.
    """
    locks = _all_locks()
    return {name: locks[name] for name in names}


def parse_environments(texts: Sequence[str]) -> Mapping[str, Path]:
    """Return the folders of existing environments by name.

    Args:
        texts: arguments of the form `NAME=DIR`.

    Raises:
        InvalidSpec: a name is unknown, or a folder is not a Python environment.
    """
    found, names = {}, list(_all_locks())
    for text in texts:
        name, _, folder = text.partition("=")
        if name not in names or not folder:
            allowed = f"write it as NAME=DIR; NAME is one of {', '.join(names)}"
            raise InvalidSpec(Problem("--environment", repr(text), allowed))
        found[name] = Path(folder).absolute()
        if not (found[name] / "bin" / "python").exists():
            raise InvalidSpec(Problem("--environment", repr(text), "name the folder of a Python environment"))
    return found


@contextlib.contextmanager
def open_environments(
    locks: Mapping[str, EnvironmentLock], existing: Mapping[str, Path]
) -> Iterator[Mapping[str, Path]]:
    """Create the environments that are missing, and prevent their deletion in the block.

    Args:
        locks: the environments that the demo needs.
        existing: environments to use instead, by name.

    Yields:
        The folders of the environments by name.

    Raises:
        EnvironmentNotCreated: an environment could not be created.
    """
    needed = {name: lock for name, lock in locks.items() if name not in existing}
    if missing := [lock for lock in needed.values() if not find_environment(lock)]:
        print(format_announcement(missing, environments_folder()), flush=True)
    created = {name: _create(lock) for name, lock in needed.items()}
    with contextlib.ExitStack() as stack:
        for name, folder in created.items():
            if not stack.enter_context(use_environment(folder)):
                raise DemoError(f"another process deleted the environment {name!r}", hint="start the demo again")
        yield {**created, **existing}


def _create(lock: EnvironmentLock) -> Path:
    if found := find_environment(lock):
        return found
    print(f"creating the environment {lock.name}", flush=True)
    # On a terminal, uv draws its progress bars there.
    return create_environment(lock, report=None if sys.stderr.isatty() else _print_line)


def _print_line(line: str) -> None:
    if not line.startswith(" + "):  # one for each package
        print(f"  {line}", flush=True)


def _all_locks() -> Mapping[str, EnvironmentLock]:
    return {**stock_locks(), **_engine_locks()}


def _engine_locks() -> Mapping[str, EnvironmentLock]:
    ours = version("trainjob")  # all distributions of a release have one version
    core = f"trainjob=={ours}"
    return {
        "airflow": EnvironmentLock(
            "airflow",
            _REQUIREMENTS / "airflow.txt",
            packages=(f"airflow-provider-trainjob=={ours}", core),
            min_python="3.11",
            download_mb=120,
        ),
        "kfp": EnvironmentLock(
            "kfp",
            _REQUIREMENTS / "kfp.txt",
            packages=(f"kfp-trainjob[author]=={ours}", core),
            download_mb=30,
        ),
    }
