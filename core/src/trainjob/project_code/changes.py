"""Changes of a project's files since its archive was packed, as `trainjob dev` sends them.

`trainjob.programs.code_loop.changes` applies them in the pods.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainjob.project_code.archive import pack_files
from trainjob.project_code.checks import check_files, check_links, check_size
from trainjob.project_code.files import ProjectFile, to_path
from trainjob.project_code.packing import list_files, write_archive
from trainjob.project_code.repository import Origin
from trainjob.spec import PackedCode

_CHUNK = 1 << 18
_JSON_BYTES = 4  # around a name in a list

Contents = Mapping[str, str]
"""Files of a project by their names; two texts are equal if type, permission and contents of the file are."""


@dataclass(frozen=True)
class CodeChanges:
    """The files of a project that differ from its archive.

    Attributes:
        sha256: SHA-256 of the uncompressed tar with the changed and new files.
        archive: the compressed tar.
        deleted: names of the files that do not exist any more.
        is_empty: whether the files are those of the archive.
    """

    sha256: str
    archive: bytes
    deleted: tuple[str, ...]
    is_empty: bool

    @property
    def size(self) -> int:
        """Number of bytes that are sent."""
        return len(self.archive) + sum(len(name.encode()) + _JSON_BYTES for name in self.deleted)


class ProjectSnapshots:
    """Snapshots of a folder; a file that has not changed since the last one is not read again.

    Args:
        folder: absolute path of the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def take(self) -> tuple[list[ProjectFile], Contents]:
        """Return the files that travel, and their contents.

        Raises:
            InvalidSpec: a file cannot be packed.
            OSError: a file cannot be read, or was deleted in this moment.
        """
        files = list_files(self._folder)
        known = self._known
        self._known = {file.name: self._read(file, known.get(file.name)) for file in files}
        return files, {name: text for name, (_, text) in self._known.items()}

    def _read(self, file: ProjectFile, known: tuple[tuple[int, ...], str] | None) -> tuple[tuple[int, ...], str]:
        path = to_path(self._folder, file.name)
        found = path.lstat()
        identity = (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode)
        if known and known[0] == identity:
            return known
        digest = hashlib.sha256(b"" if file.link else path.read_bytes()).hexdigest()
        return identity, _describe(file, digest)


def read_contents(code: PackedCode) -> Contents:
    """Return the files of packed code.

    Raises:
        InvalidSpec: the archive is not in the packed code, and the project has changed since.
    """
    with tempfile.TemporaryFile() as file:
        if code.archive:
            file.write(base64.b64decode(code.archive))
        else:
            write_archive(code, file)
        file.seek(0)
        with tarfile.open(fileobj=gzip.GzipFile(fileobj=file), mode="r|") as tar:
            return {member.name: _describe_member(tar, member) for member in tar}


def find_changes(old: Contents, new: Contents) -> tuple[list[str], list[str]]:
    """Return the names of the files that are changed or new, and of those that are deleted."""
    return [name for name, text in new.items() if old.get(name) != text], [name for name in old if name not in new]


def pack_changes(folder: Path, files: Sequence[ProjectFile], base: Contents, contents: Contents) -> CodeChanges:
    """Return the changes of a project.

    Args:
        folder: absolute path of its folder.
        files: all files that travel.
        base: the contents of its archive.
        contents: the contents of the files.

    Raises:
        InvalidSpec: a file cannot or must not travel, or changes in this moment.
    """
    changed, deleted = find_changes(base, contents)
    selected = set(changed)
    sent = [file for file in files if file.name in selected]
    check_size(folder, files)
    check_links(files)
    if plain := [file for file in sent if not file.link]:  # those of the archive were checked before
        check_files(folder, plain)
    sink = io.BytesIO()
    sha256 = pack_files(folder, sent, Origin(), sink)
    return CodeChanges(sha256, sink.getvalue(), tuple(deleted), is_empty=not (sent or deleted))


def _describe(file: ProjectFile, digest: str) -> str:
    return f"-> {file.link}" if file.link else f"{'x' * file.executable} {digest}"


def _describe_member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    digest, data = hashlib.sha256(), tar.extractfile(member) if member.isreg() else None
    while data and (chunk := data.read(_CHUNK)):
        digest.update(chunk)
    is_executable = member.isreg() and bool(member.mode & 0o100)
    link = os.fspath(member.linkname) if member.issym() else ""
    return _describe(ProjectFile(member.name, member.size, is_executable, link), digest.hexdigest())
