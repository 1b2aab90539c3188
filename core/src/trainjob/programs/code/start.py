"""Start of the command of a step in the unpacked project."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import shutil
import socket
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.programs.code.failure import CodeFailure

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["build_module_command", "build_program_command", "build_script_command", "set_search_paths"]

_TORCHRUN = ("-m", "torch.distributed.run")
_SKIPPED = ("__pycache__", "node_modules")


def set_search_paths(folder: Path, packages: Path | None) -> None:
    """Add the project and its packages to `PYTHONPATH` and `PATH`."""
    source = folder / "src"
    roots = [folder, *([source] if source.is_dir() and not (source / "__init__.py").exists() else [])]
    modules = [*map(str, roots), *([str(packages)] if packages else [])]
    old = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([*modules, *([old] if old else [])])
    sys.path[:0] = modules  # for the search of a module before it is started
    importlib.invalidate_caches()
    if packages:
        os.environ["PATH"] = os.pathsep.join([str(packages / "bin"), os.environ.get("PATH", os.defpath)])


def build_module_command(module: str, words: Sequence[str], folder: Path) -> list[str]:
    """Return the command that runs a module, by torchrun if the runtime's framework is torch.

    Raises:
        CodeFailure: there is no such module.
    """
    parts = module.split(".")
    if not _is_module(parts):
        modules = {".".join(each.with_suffix("").parts) for each in _list_scripts(folder)}
        modules |= {each[len("src.") :] for each in modules if each.startswith("src.")}
        packages = {each[: -len(".__main__")] for each in modules if each.endswith(".__main__")}
        raise CodeFailure(
            f"there is no module {module}: neither {'/'.join(parts)}.py nor {'/'.join(parts)}/__main__.py exists in "
            f"the project, its packages or the image{_suggest(module, modules | packages)}"
        )
    return [sys.executable, *_prepare_torchrun(), "-m", module, *words]


def build_script_command(script: str, words: Sequence[str], folder: Path) -> list[str]:
    """Return the command that runs a script of the project.

    torchrun runs it if the runtime's framework is torch.

    Raises:
        CodeFailure: there is no such file in the project.
    """
    path = os.path.normpath(script)
    if path.startswith(("/", "..")) or not (folder / path).is_file():
        found = {str(each) for each in _list_scripts(folder)}
        raise CodeFailure(f"there is no file {script} in the project{_suggest(path, found)}")
    return [sys.executable, *_prepare_torchrun(), str(folder / path), *words]


def build_program_command(words: Sequence[str]) -> list[str]:
    """Return the command of the step itself.

    Raises:
        CodeFailure: its program does not exist or is not executable.
    """
    program = words[0]
    if not shutil.which(program):
        problem = "is not executable" if "/" in program and Path(program).is_file() else "does not exist"
        where = "" if "/" in program else " in the image or the project's packages (variable PATH)"
        hint = f"; start it as ./{program}" if "/" not in program and Path(program).is_file() else ""
        raise CodeFailure(f"the program {program} {problem}{where}{hint}")
    return list(words)


def _prepare_torchrun() -> Sequence[str]:
    """Return the words that start torchrun; empty if the Trainer has not set its variables.

    On one node, torchrun gets a free port: a pod that is still saving may hold the Trainer's.
    """
    nodes = os.environ.get("PET_NNODES")
    if nodes == "1":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ.update(PET_MASTER_ADDR="127.0.0.1", PET_MASTER_PORT=str(free.getsockname()[1]))
    return _TORCHRUN if nodes is not None else ()


def _is_module(parts: Sequence[str]) -> bool:
    """Return whether `python -m` finds a module, without importing its packages."""
    spec = PathFinder.find_spec(parts[0])
    if spec is None:  # a finder of an editable installation in the image may know it
        return importlib.util.find_spec(parts[0]) is not None
    for part in [*parts[1:], "__main__"]:
        if spec.submodule_search_locations is None:
            return part == "__main__"
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
        if spec is None:
            return False
    return True


def _list_scripts(folder: Path) -> Iterator[Path]:
    """Yield the relative paths of the Python files of the project."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _SKIPPED]
        for name in files:
            if name.endswith(".py"):
                yield Path(parent, name).relative_to(folder)


def _suggest(name: str, others: set[str]) -> str:
    near = difflib.get_close_matches(name, sorted(others), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""
