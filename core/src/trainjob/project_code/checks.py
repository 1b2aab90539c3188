"""Checks of a project's files before they are packed: what would be broken, too large or public in the pods.

Everybody who may get the TrainJob, or a ConfigMap of its namespace, can read the archive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from trainjob.errors import InvalidSpec, Problem
from trainjob.project_code.archive import MAX_BYTES
from trainjob.project_code.file_credentials import find_credential
from trainjob.project_code.files import IGNORE_FILE, ProjectFile, to_path

_MAX_SHOWN = 10
_MAX_TEXT_BYTES = 1 << 20
_BINARY_BYTES = 8000  # git looks for a NUL in as many bytes to recognize a binary file
_MAX_LINKS = 40  # in one path, as Linux
_LFS_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_PUBLIC = "which everybody who may get the TrainJob could read"
_ADVICE = (
    f"a file that the training does not need is left out if {IGNORE_FILE} or .gitignore names it; a credential that it "
    "needs belongs into a Secret that is passed as an environment variable"
)


def check_files(folder: Path, files: Sequence[ProjectFile]) -> None:
    """Refuse files that cannot travel, or must not.

    Args:
        folder: folder of the files.
        files: the files.

    Raises:
        InvalidSpec: there is no file, the files are too large, a link would be broken, or a file contains a credential,
            is a pointer of Git LFS or cannot be read. The error lists up to ten problems.
    """
    check_size(folder, files)
    _raise_if_any([*_find_broken_links(files), *_find_bad_contents(folder, files)])


def check_size(path: Path, files: Sequence[ProjectFile]) -> None:
    """Refuse a project without a file, and one that is too large.

    Raises:
        InvalidSpec: there is no file, or all together are larger than [MAX_BYTES][].
    """
    if not files:
        rule = (
            f"it has no file that travels. Files that .gitignore or {IGNORE_FILE} names do not; in a repository, "
            f"`git status --ignored` shows them"
        )
        raise InvalidSpec(Problem("code.path", repr(str(path)), rule))
    total = sum(file.size for file in files)
    if total > MAX_BYTES:
        largest = sorted(files, key=lambda file: -file.size)[:_MAX_SHOWN]
        listed = "".join(f"\n  {format_size(file.size):>10}  {file.name}" for file in largest)
        rule = (
            f"its files have {format_size(total)}, and {format_size(MAX_BYTES)} are allowed. Name data and models in "
            f"{IGNORE_FILE}, and put them into the workspace or a bucket. The largest files are:{listed}"
        )
        raise InvalidSpec(Problem("code.path", repr(str(path)), rule))


def check_links(files: Sequence[ProjectFile]) -> None:
    """Refuse links that would be broken in the pod.

    Raises:
        InvalidSpec: a link is absolute, leaves the folder, or its target does not travel.
    """
    _raise_if_any([*_find_broken_links(files)])


def format_size(size: int) -> str:
    """Return a number of bytes for people, such as `1.5 MiB`."""
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << exponent:
            return f"{size / (1 << exponent):.1f} {unit}"
    return f"{size} bytes"


def _raise_if_any(problems: Sequence[tuple[str, str]]) -> None:
    """Raise the error that lists the problems, which are pairs of a file and a rule."""
    shown = [Problem("code.path", f"a folder with {name!r}", rule) for name, rule in problems[:_MAX_SHOWN]]
    if further := len(problems) - len(shown):
        files = "another file" if further == 1 else f"{further} other files"
        shown.append(Problem("code.path", f"a folder with {files}", "there are more problems of these kinds"))
    if shown:
        raise InvalidSpec(shown, hint=_ADVICE)


def _find_broken_links(files: Sequence[ProjectFile]) -> Iterator[tuple[str, str]]:
    links = {file.name: file.link for file in files if file.link}
    if not links:
        return
    sent = {file.name for file in files} | {
        str(parent) for file in files for parent in PurePosixPath(file.name).parents
    }
    for name, target in links.items():
        if target.startswith("/"):
            reason = "is absolute: make it relative"
        elif (found := _resolve(name, links)) is None:
            reason = "leaves the folder, or never ends"
        elif found not in sent:
            reason = f"does not travel, because it does not exist, or .gitignore or {IGNORE_FILE} names it"
        else:
            continue
        yield name, f"the target of this link, {target!r}, {reason}"


def _resolve(name: str, links: Mapping[str, str]) -> str | None:
    """Return the file or folder that a link means, `.` for the top; None if it is outside."""
    *found, last = name.split("/")
    pending, followed = [last], 0
    while pending:
        part = pending.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            if not found:
                return None
            found.pop()
            continue
        target = links.get("/".join((*found, part)))
        if target is None:
            found.append(part)
            continue
        followed += 1
        if followed > _MAX_LINKS or target.startswith("/"):
            return None
        pending[:0] = target.split("/")
    return "/".join(found) or "."


def _find_bad_contents(folder: Path, files: Sequence[ProjectFile]) -> Iterator[tuple[str, str]]:
    for file in files:
        if file.link:
            continue
        try:
            with to_path(folder, file.name).open("rb") as opened:
                start = opened.read(_BINARY_BYTES)
                if b"\0" in start:
                    continue
                contents = start + (opened.read() if file.size <= _MAX_TEXT_BYTES else b"")
        except OSError as error:
            yield file.name, f"it cannot be read: {error.strerror}"
            continue
        if contents.startswith(_LFS_POINTER):
            yield file.name, "it is a pointer of Git LFS in place of the file: run `git lfs pull`"
        elif found := find_credential(file.name, contents.decode(errors="replace")):
            line, kind = found
            yield file.name, f"line {line} contains {kind}, {_PUBLIC}"
