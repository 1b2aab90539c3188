"""Files of a project: those that git knows or would add, or all that `.gitignore` does not name."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.errors import InvalidSpec, Problem
from trainjob.project_code import repository

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

IGNORE_FILE = ".trainjobignore"
_CHECKOUT_ADVICE = f"run `git submodule update --init --recursive`, or name it in {IGNORE_FILE}"
_SUBMODULE_MODE = 0o160000
_LEFT_OUT_ALWAYS = re.compile(rb"(?:.*/)?(?:__pycache__|\.git)(?:/.*)?|.*\.pyc", re.DOTALL)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class ProjectFile:
    """A file of a project, or a symbolic link.

    Attributes:
        name: path below the folder, with slashes.
        size: size in bytes; 0 for a link.
        executable: whether its owner may execute it.
        link: target of a symbolic link; empty for a file.
    """

    name: str
    size: int
    executable: bool
    link: str


def list_folder(folder: Path) -> list[ProjectFile]:
    """Return the files of a folder that travel, sorted by the bytes of their names.

    Args:
        folder: absolute path of the folder.

    Raises:
        InvalidSpec: git cannot read the repository, a submodule is not checked out, a name is not UTF-8, or an entry is
            neither a file nor a link.
    """
    is_left_out = read_ignore_file(folder)
    list_names = _walk if repository.find_repository(folder) is None else _list_repository
    modes = {name: mode for name, mode in list_names(folder, b"", is_left_out) if not is_left_out(name)}
    return [_read_file(folder, name, modes[name]) for name in sorted(modes)]


def read_ignore_file(folder: Path) -> Callable[[bytes], bool]:
    """Return a function that returns whether a file is left out of the archive.

    It also accepts the name of a folder with a slash at its end.
    """
    ignored = _read_patterns(folder / IGNORE_FILE)

    def is_left_out(name: bytes) -> bool:
        by_user = ignored is not None and ignored.match_file(_to_text(name))
        return by_user or bool(_LEFT_OUT_ALWAYS.fullmatch(name.rstrip(b"/")))

    return is_left_out


def to_path(folder: Path, name: str) -> Path:
    """Return the path of a file, whose name is UTF-8 on disk in every locale."""
    return _locate(folder, name.encode())


# Yields names with the mode in git's index; 0 means the mode of the file itself.
_Names = Iterator[tuple[bytes, int]]


def _list_repository(top: Path, prefix: bytes, is_left_out: Callable[[bytes], bool]) -> _Names:
    """Yield the files below `prefix` that git knows or would add.

    Those of submodules and other repositories in the folder follow in their place.
    """
    folder = _locate(top, prefix)
    tracked = repository.list_tracked(folder)
    is_real_folder = _RealFolders(folder)
    has_bits = repository.has_executable_bits(folder)
    for listed in {**tracked, **dict.fromkeys(repository.list_untracked(folder))}:
        name, mode = listed.rstrip(b"/"), tracked.get(listed, 0)
        path = _locate(folder, name)
        # A tracked file may be deleted, or a link may have replaced its folder.
        if not os.path.lexists(path) or not is_real_folder(name.rpartition(b"/")[0]):
            continue
        if mode == _SUBMODULE_MODE or name != listed:
            inner = prefix + name + b"/"
            if not is_left_out(inner):
                if not os.path.lexists(path / ".git"):
                    raise _refuse(inner, f"the submodule is not checked out: {_CHECKOUT_ADVICE}")
                yield from _list_repository(top, inner, is_left_out)
        elif path.is_symlink() or not path.is_dir():  # a folder may have replaced a tracked file
            yield prefix + name, 0 if has_bits else mode or repository.PLAIN_MODE


class _RealFolders:
    """The folders below a folder that are no links and are not below one."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._known = {b"": True}

    def __call__(self, name: bytes) -> bool:
        """Return whether a folder is real; it is looked up once."""
        if name not in self._known:
            path = _locate(self._top, name)
            self._known[name] = path.is_dir() and not path.is_symlink() and self(name.rpartition(b"/")[0])
        return self._known[name]


def _walk(
    top: Path,
    prefix: bytes,
    is_left_out: Callable[[bytes], bool],
    patterns: tuple[tuple[bytes, GitIgnoreSpec], ...] = (),
) -> _Names:
    """Yield the files below `prefix` that no `.gitignore` of these folders names."""
    folder = _locate(top, prefix)
    with os.scandir(folder) as entries:
        found = list(entries)
    own = _read_patterns(folder / ".gitignore")
    patterns = ((prefix, own), *patterns) if own else patterns
    for entry in found:
        is_folder = entry.is_dir(follow_symlinks=False)
        name = prefix + os.fsencode(entry.name) + (b"/" if is_folder else b"")
        if is_left_out(name) or _is_ignored(name, patterns):
            continue
        if not is_folder:
            yield name, 0
        elif os.path.lexists(Path(entry.path, ".git")):
            yield from _list_repository(top, name, is_left_out)
        else:
            yield from _walk(top, name, is_left_out, patterns)


def _is_ignored(name: bytes, patterns: tuple[tuple[bytes, GitIgnoreSpec], ...]) -> bool:
    """Return whether a `.gitignore` names a file; that of the nearest folder decides."""
    for prefix, spec in patterns:
        text = _to_text(name.removeprefix(prefix))
        decision = _decide_on_folder(text, spec) if text.endswith("/") else spec.check_file(text).include
        if decision is not None:
            return decision
    return False


def _decide_on_folder(name: str, spec: GitIgnoreSpec) -> bool | None:
    """Return whether the last pattern that matches a folder ignores it; None without one.

    For a folder, `check_file` prefers patterns without a slash (pathspec 1.1), so that `!*/` after `*` had no effect.
    """
    for pattern in reversed(list(spec.patterns)):
        # `data/**` ignores what is in the folder and not the folder, so that `!data/small.json` has an effect.
        if pattern.include is not None and not str(pattern.pattern).endswith("/**") and pattern.match_file(name):
            return pattern.include
    return None


def _read_patterns(path: Path) -> GitIgnoreSpec | None:
    if not path.is_file():
        return None
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(path.read_text("utf-8-sig", "surrogateescape").split("\n"))


def _read_file(folder: Path, name: bytes, mode: int) -> ProjectFile:
    """Return the facts of a file.

    Raises:
        InvalidSpec: its name is not UTF-8 or has control characters, or it is neither a file nor a link.
    """
    path = _locate(folder, name)
    found = path.lstat()
    try:
        text = name.decode()
        # Path.readlink would drop a `./`.
        link = os.fsencode(os.readlink(path)).decode() if stat.S_ISLNK(found.st_mode) else ""  # noqa: PTH115
    except UnicodeDecodeError:
        raise _refuse(name, "its name, or the target of the link, is not UTF-8: rename it") from None
    if _CONTROL_CHARACTER.search(text + link):
        raise _refuse(name, "its name, or the target of the link, has control characters: rename it")
    if link:
        return ProjectFile(text, 0, executable=False, link=link)
    if not stat.S_ISREG(found.st_mode):
        rule = f"it is a device, a socket or a named pipe, which cannot travel: delete it or name it in {IGNORE_FILE}"
        raise _refuse(name, rule)
    return ProjectFile(text, found.st_size, executable=bool((mode or found.st_mode) & stat.S_IXUSR), link="")


def _refuse(name: bytes, rule: str) -> InvalidSpec:
    return InvalidSpec(Problem("code.path", f"a folder with {_to_text(name)!a}", rule))


def _locate(folder: Path, name: bytes) -> Path:
    return folder / os.fsdecode(name)


def _to_text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")
