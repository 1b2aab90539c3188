"""Archives of a project: the same files give the same bytes of a tar, whoever packs them.

The archive is a tar (POSIX.1-2001, pax) with the files and links in the given order and nothing else: no folders,
owners or times. It is compressed with gzip (RFC 1952), whose comment has the origin of the files.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import stat
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from trainjob.errors import InvalidSpec, Problem
from trainjob.project_code.files import ProjectFile, to_path
from trainjob.project_code.repository import Origin

MAX_BYTES = 200 << 20
"""Size of the files of a project in bytes, at most."""

_CHUNK = 1 << 18
_SMALL_CHUNK = 1 << 14  # of compressed data, which may become a thousand times as large
_END = b"\0" * 1024  # two empty blocks
# Compression method deflate, the flag FCOMMENT, no time, best compression, unknown operating system.
_GZIP_HEADER = b"\x1f\x8b\x08\x10\0\0\0\0\x02\xff"
_MAX_COMMENT = 10_000
_MAX_TAR_BYTES = 2 * MAX_BYTES  # with the headers of many small files


class Sink(Protocol):
    """Object that the archive is written to."""

    def write(self, data: bytes, /) -> object:
        """Write the data."""


class DamagedArchive(ValueError):
    """An archive that no `trainjob pack` wrote, or that was changed since."""


@dataclass(frozen=True)
class ReadArchive:
    """An archive that was read to its end.

    Attributes:
        sha256: SHA-256 of the uncompressed tar.
        files: its files.
        origin: commit of the files.
    """

    sha256: str
    files: list[ProjectFile]
    origin: Origin


def pack_files(folder: Path, files: Iterable[ProjectFile], origin: Origin, sink: Sink) -> str:
    """Write the archive of these files, and return the SHA-256 of the uncompressed tar.

    Args:
        folder: folder of the files.
        files: the files; their order counts.
        origin: commit of the files; it does not change the digest.
        sink: destination of the compressed archive.

    Raises:
        InvalidSpec: a file changed while it was packed, or cannot be read.
    """
    comment = json.dumps(asdict(origin), sort_keys=True).encode("ascii")
    sink.write(_GZIP_HEADER + comment + b"\0")
    digest, compressor, checksum, size = hashlib.sha256(), zlib.compressobj(9, wbits=-zlib.MAX_WBITS), 0, 0
    for data in _to_tar((file, _read_contents(folder, file)) for file in files):
        digest.update(data)
        checksum, size = zlib.crc32(data, checksum), size + len(data)
        sink.write(compressor.compress(data))
    sink.write(compressor.flush() + struct.pack("<LL", checksum, size & 0xFFFFFFFF))
    return digest.hexdigest()


def read_archive(archive: BinaryIO) -> ReadArchive:
    """Return the facts of an archive, which is read to its end.

    Raises:
        DamagedArchive: it differs from what [pack_files][] writes for its files.
    """
    origin = _read_origin(archive)
    archive.seek(0)
    files: list[ProjectFile] = []
    try:
        tar = _HashingReader(gzip.GzipFile(fileobj=archive))
        # The same files, packed again, have to give the same bytes: nothing is hidden between or after them.
        again = hashlib.sha256()
        for data in _to_tar(_iterate_members(tar, files)):
            again.update(data)
        while tar.read(_CHUNK):
            pass
    except DamagedArchive:
        raise
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise DamagedArchive(f"it is damaged ({error})") from None
    if again.digest() != tar.digest.digest():
        raise DamagedArchive("another program wrote it, or it was changed")
    return ReadArchive(again.hexdigest(), files, origin)


def copy_archive(archive: BinaryIO, sink: Sink) -> str:
    """Copy a compressed archive, and return the SHA-256 of the uncompressed tar.

    Raises:
        DamagedArchive: it is no complete gzip file.
    """
    digest, decompressor = hashlib.sha256(), zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        while data := archive.read(_SMALL_CHUNK):
            sink.write(data)
            digest.update(decompressor.decompress(data))
    except zlib.error as error:
        raise DamagedArchive(f"it is damaged ({error})") from None
    if decompressor.unused_data or not decompressor.eof:
        raise DamagedArchive("it is damaged: it ends too early, or data follows its end")
    return digest.hexdigest()


def _to_tar(entries: Iterable[tuple[ProjectFile, Iterable[bytes]]]) -> Iterator[bytes]:
    """Yield the bytes of a tar with these files and their contents."""
    for file, contents in entries:
        yield _to_header(file)
        yield from contents
        yield b"\0" * (-file.size % tarfile.BLOCKSIZE)
    yield _END


def _to_header(file: ProjectFile) -> bytes:
    header = tarfile.TarInfo(file.name)
    header.size = file.size
    header.mode = 0o755 if file.executable else 0o644
    if file.link:
        header.type, header.linkname, header.mode = tarfile.SYMTYPE, file.link, 0o777
    # The bytes are the same in Python 3.10 to 3.13, which a test compares with a constant.
    return header.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


def _read_contents(folder: Path, file: ProjectFile) -> Iterator[bytes]:
    """Yield the contents of a file.

    Raises:
        InvalidSpec: it is no longer the file that was listed, or cannot be read.
    """
    if file.link:
        return
    changed = "it changed while it was packed: pack again when no program writes to it"
    try:
        # A link in place of the file is an error, and a named pipe does not block.
        descriptor = os.open(to_path(folder, file.name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as opened:
            remaining = file.size if stat.S_ISREG(os.fstat(opened.fileno()).st_mode) else -1
            while remaining > 0 and (data := opened.read(min(_CHUNK, remaining))):
                remaining -= len(data)
                yield data
            if remaining or opened.read(1):
                raise InvalidSpec(Problem("code.path", repr(file.name), changed))
    except FileNotFoundError:
        raise InvalidSpec(Problem("code.path", repr(file.name), changed)) from None
    except OSError as error:
        raise InvalidSpec(Problem("code.path", repr(file.name), f"it cannot be read: {error.strerror}")) from None


def _read_origin(archive: BinaryIO) -> Origin:
    start = archive.read(len(_GZIP_HEADER) + _MAX_COMMENT)
    comment, end, _ = start.removeprefix(_GZIP_HEADER).partition(b"\0")
    try:
        if not start.startswith(_GZIP_HEADER) or not end:
            raise ValueError
        fields = json.loads(comment)
        origin = Origin(**fields)
    except (ValueError, TypeError):
        raise DamagedArchive("`trainjob pack` did not write it") from None
    return origin


def _iterate_members(tar: _HashingReader, files: list[ProjectFile]) -> Iterator[tuple[ProjectFile, Iterator[bytes]]]:
    """Yield the files of a tar with their contents, and append them to `files`.

    Raises:
        DamagedArchive: a member is neither a file nor a link, or its name does not belong into the folder.
    """
    with tarfile.open(fileobj=tar, mode="r|") as opened:
        for member in opened:
            if not (member.isreg() or member.issym()):
                raise DamagedArchive(f"another program wrote it: {member.name!r} is neither a file nor a link")
            file = ProjectFile(member.name, member.size, bool(member.mode & 0o100) and member.isreg(), member.linkname)
            parts = file.name.split("/")
            if {"", ".", ".."} & {*parts} or (files and files[-1].name.encode() >= file.name.encode()):
                raise DamagedArchive(f"another program wrote it: the name {file.name!r} is not allowed there")
            files.append(file)
            yield file, _read_member(opened, member)


def _read_member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    contents = tar.extractfile(member) if member.isreg() else None
    while contents and (data := contents.read(_CHUNK)):
        yield data


class _HashingReader(io.RawIOBase):
    """Reader of an uncompressed tar that hashes what it returns, up to a limit."""

    def __init__(self, source: gzip.GzipFile) -> None:
        super().__init__()
        self._source = source
        self._remaining = _MAX_TAR_BYTES
        self.digest = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        """Return up to this number of bytes.

        Raises:
            DamagedArchive: the archive has more bytes than the limit.
        """
        data = self._source.read(size)
        self._remaining -= len(data)
        if self._remaining < 0:
            raise DamagedArchive(f"uncompressed, it has more than {_MAX_TAR_BYTES >> 20} MiB")
        self.digest.update(data)
        return data
