"""Unpacking of a project's archive, after a check of its digest.

File names are bytes here, because a name in any language has to arrive when the locale of the image is POSIX.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from trainjob.programs.code.failure import CodeFailure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

__all__ = ["unpack"]

_CHUNK = 1 << 20
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError)
_SUBMIT_AGAIN = "submit the job again from the folder of the project"


def unpack(archive: str, sha256: str) -> tuple[str, int]:
    """Unpack a project into a new folder.

    Args:
        archive: path of the tar file, compressed by gzip.
        sha256: expected SHA-256 of the uncompressed tar file, in hex digits.

    Returns:
        Path of the folder, and the number of files and links.

    Raises:
        CodeFailure: the archive is missing, damaged, another one, or has a name outside of the folder; or the folder
            cannot be written. Nothing is left then.
    """
    try:
        opened = Path(archive).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise CodeFailure(
            f"the code cannot be read: {error}; check that the ConfigMap or the file in the workspace still exists, "
            f"or {_SUBMIT_AGAIN}"
        ) from error
    with opened:
        try:
            found = _digest(opened)
            if found != sha256:
                raise CodeFailure(
                    f"{archive} has other code than the job was created with: its SHA-256 is {found}, not {sha256}; "
                    f"{_SUBMIT_AGAIN}"
                )
            opened.seek(0)
            return _extract(opened, archive)
        except _DAMAGED as error:
            raise CodeFailure(f"the code in {archive} is damaged: {error}; {_SUBMIT_AGAIN}") from error
        except OSError as error:
            raise CodeFailure(f"the code in {archive} cannot be unpacked: {error}") from error


def _digest(archive: BinaryIO) -> str:
    """Return the SHA-256 of the uncompressed file."""
    digest = hashlib.sha256()
    with gzip.GzipFile(fileobj=archive) as tar:
        for chunk in iter(lambda: tar.read(_CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


def _extract(archive: BinaryIO, name: str) -> tuple[str, int]:
    folder = tempfile.mkdtemp(prefix="trainjob-code-")
    try:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - processes of other users may read the code
        count = _write_members(archive, os.fsencode(folder))
    except FileExistsError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CodeFailure(f"{name} has a name twice: {error.filename!r}; {_SUBMIT_AGAIN}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, count


def _write_members(archive: BinaryIO, folder: bytes) -> int:
    """Write the files, then the links, and return their number.

    No file is written through a link then.
    """
    links = []
    count = 0
    with tarfile.open(fileobj=archive, mode="r|gz", encoding="utf-8", errors="surrogateescape") as tar:
        for member in _iterate(tar):
            count += 1
            path = _place(folder, member.name)
            os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120 - paths are bytes
            if member.issym():
                links.append((path, member.name, member.linkname))
            elif member.isreg():
                _write_file(tar, member, path)
            else:
                raise CodeFailure(f"{member.name!r} in the code is neither a file nor a symbolic link; pack it again")
    for path, _, target in links:
        os.symlink(_encode(target), path)  # noqa: PTH211 - paths are bytes
    for path, name, target in links:
        if not os.path.realpath(path).startswith(os.path.realpath(folder) + b"/"):
            raise CodeFailure(
                f"the link {name!r} in the code leads out of the project, to {target!r}: replace it by the file, or "
                "list it in .trainjobignore"
            )
    return count


def _iterate(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members, and forget each, because the list of them grows with the archive."""
    for member in iter(tar.next, None):
        yield member
        tar.members = []  # type: ignore[attr-defined]


def _place(folder: bytes, name: str) -> bytes:
    """Return the path of a member in the folder."""
    parts = name.split("/")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise CodeFailure(f"{name!r} in the code is outside of the project or no path; pack it again")
    return os.path.join(folder, _encode(name))  # noqa: PTH118 - paths are bytes


def _write_file(tar: tarfile.TarFile, member: tarfile.TarInfo, path: bytes) -> None:
    source = tar.extractfile(member)
    with open(path, "xb") as file:  # noqa: PTH123 - paths are bytes
        if source is not None:
            shutil.copyfileobj(source, file, _CHUNK)
        os.fchmod(file.fileno(), 0o755 if member.mode & 0o100 else 0o644)


def _encode(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
