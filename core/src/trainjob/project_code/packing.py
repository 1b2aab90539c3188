"""Code of a project, packed as it travels to the pods."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import BinaryIO

from trainjob.project_code.archive import (
    DamagedArchive,
    ReadArchive,
    copy_archive,
    pack_files,
    read_archive,
)
from trainjob.project_code.checks import check_files, check_links, check_size
from trainjob.project_code.files import IGNORE_FILE, ProjectFile, list_folder, read_ignore_file
from trainjob.project_code.repository import Origin, read_origin
from trainjob.spec.base import invalid_field
from trainjob.spec.code import MAX_CONFIG_MAP_BYTES, Code, PackedCode
from trainjob.spec.problems import find_similar

ARCHIVE_SUFFIX = ".tar.gz"
"""End of the name of an archive."""

_MAX_LISTED = 12
_PROJECT_FILE = "pyproject.toml"


def pack(code: Code, base: Path) -> PackedCode:
    """Return the code of a project as it travels.

    Args:
        code: the folder or the archive, and the file with its requirements.
        base: folder at which a relative path starts.

    Raises:
        InvalidSpec: the path does not exist, a file cannot or must not travel, the archive is not from `trainjob pack`,
            or the requirements are not in it.
    """
    if code.digest:
        fields = code.model_dump(include={"requirements", "secret", "endpoint", "region"})
        return PackedCode(sha256=code.digest, uri=code.path, **fields)
    path = _find(code.path, base)
    inline = _InlineArchive()
    if path.is_dir():
        files = list_files(path)
        check_files(path, files)
        origin = read_origin(path, read_ignore_file(path))
        sha256 = pack_files(path, files, origin, inline)
    else:
        archive = _open_archive(path)
        files, origin, sha256 = archive.files, archive.origin, archive.sha256
        with path.open("rb") as opened:
            copy_archive(opened, inline)
    _check_requirements(code.requirements, path, files)
    return PackedCode(
        sha256=sha256,
        requirements=code.requirements,
        commit=origin.commit,
        branch=origin.branch,
        modified=origin.modified,
        files=len(files),
        size=inline.size,
        archive=base64.b64encode(inline.data).decode(),
        path=str(path),
    )


def write_archive(packed: PackedCode, sink: BinaryIO) -> None:
    """Write the compressed archive again, from the folder or the archive that it came from.

    Args:
        packed: what [pack][] returned.
        sink: destination; after an error, the caller has to discard what was written.

    Raises:
        InvalidSpec: the files have changed since, or cannot be read.
    """
    path = _find(packed.path, Path("/"))
    try:
        if path.is_dir():
            origin = Origin(packed.commit, packed.branch, packed.modified)
            sha256 = pack_files(path, list_files(path), origin, sink)
        else:
            with path.open("rb") as opened:
                sha256 = copy_archive(opened, sink)
    except DamagedArchive:
        sha256 = ""
    if sha256 != packed.sha256:
        rule = "its files have changed since the request was made: make the request again"
        raise invalid_field("code.path", packed.path, rule)


def list_files(path: Path) -> list[ProjectFile]:
    """Return the files of a folder that travel, or those in an archive, sorted by name.

    Raises:
        InvalidSpec: the folder is a whole home or file system, a file cannot be packed, or the archive is not from
            `trainjob pack`.
    """
    path = _make_absolute(path)
    if not path.is_dir():
        return _open_archive(path).files
    if path.resolve() in (Path("/"), Path(os.path.expanduser("~")).resolve()):  # noqa: PTH111 - no error without a home
        raise invalid_field("code.path", str(path), "it is no project: give the folder of the code")
    try:
        return list_folder(path)
    except OSError as error:
        raise invalid_field("code.path", error.filename, f"it cannot be read: {error.strerror}") from None


class _InlineArchive:
    """Sink that keeps an archive only while it is small enough to travel in an object.

    Attributes:
        size: number of bytes that were written.
        data: the bytes; empty if they are too many.
    """

    def __init__(self) -> None:
        self.size = 0
        self.data = bytearray()

    def write(self, data: bytes, /) -> None:
        """Count the data, and keep it unless the archive is too large."""
        self.size += len(data)
        if self.size <= MAX_CONFIG_MAP_BYTES:
            self.data += data
        else:
            self.data.clear()


def _find(given: str, base: Path) -> Path:
    """Return the absolute path of a project.

    Raises:
        InvalidSpec: there is none.
    """
    path = _make_absolute(base / given)
    if path.exists():
        return path
    around = next(each for each in path.parents if each.exists())
    missing = path.relative_to(around).parts[0]
    names = sorted(each.name for each in around.iterdir()) if around.is_dir() else []
    if similar := find_similar(missing, names):
        advice = f"did you mean {str(around / similar)!r}?"
    elif names:
        more = ", ..." if len(names) > _MAX_LISTED else ""
        advice = f"{str(around)!r} has {', '.join(names[:_MAX_LISTED])}{more}"
    else:
        advice = f"{str(around)!r} is empty or no folder"
    raise invalid_field("code.path", given, f"{str(path)!r} does not exist; {advice}")


def _make_absolute(path: Path) -> Path:
    # Links stay: one that means another checkout at each update, as git-sync makes it, is read again later.
    return Path(os.path.abspath(path))  # noqa: PTH100


def _open_archive(path: Path) -> ReadArchive:
    """Return the facts of an archive that `trainjob pack` wrote.

    Raises:
        InvalidSpec: the file is something else.
    """
    advice = f"give the folder of the project, or an archive that `trainjob pack --output NAME{ARCHIVE_SUFFIX}` wrote"
    if not path.name.endswith(ARCHIVE_SUFFIX) or not path.is_file():
        raise invalid_field("code.path", str(path), f"it is neither a folder nor such an archive: {advice}")
    try:
        with path.open("rb") as opened:
            archive = read_archive(opened)
    except DamagedArchive as error:
        raise invalid_field("code.path", str(path), f"it is not an archive of a project: {error}; {advice}") from None
    except OSError as error:
        raise invalid_field("code.path", str(path), f"it cannot be read: {error.strerror}") from None
    check_size(path, archive.files)
    check_links(archive.files)
    return archive


def _check_requirements(name: str, path: Path, files: list[ProjectFile]) -> None:
    """Refuse requirements that the project does not have at its top.

    Raises:
        InvalidSpec: the file, or the `pyproject.toml` beside a `uv.lock`, does not travel.
    """
    top = {file.name for file in files}
    for required in {"": (), "uv.lock": ("uv.lock", _PROJECT_FILE)}.get(name, (name,)):
        if required in top:
            continue
        is_ignored = path.is_dir() and os.path.lexists(path / required)
        reason = f".gitignore or {IGNORE_FILE} leaves it out" if is_ignored else f"there is none at the top of {path}"
        others = [other for other in ("uv.lock", "requirements.txt") if other in top]
        advice = f"; there is {others[0]}" if others and required == name else ""
        create = {"uv.lock": "; `uv lock` creates it"}.get(required, "")
        raise invalid_field("code.requirements", name, f"{required} is needed, and {reason}{create}{advice}")
