"""Files of an export with their digests, which are computed and checked in one read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

from trainjob.errors import ExportError
from trainjob.programs.export.finite_check import FiniteCheck
from trainjob.programs.export.layout import ExportFile
from trainjob.programs.fetch.folder import PIECE_BYTES
from trainjob.programs.fetch.progress import TransferProgress

__all__ = [
    "FILES_AT_ONCE",
    "FileState",
    "HashedFile",
    "get_state",
    "hash_content",
    "hash_files",
    "hash_opened",
    "map_files",
    "read_blocks",
]

T = TypeVar("T")
FILES_AT_ONCE = 4
"""Number of files that are read, copied or sent at the same time."""
FileState = tuple[int, int, int]
"""Size in bytes, time of the last change in ns since 1970, and inode of a file."""


@dataclass(frozen=True)
class HashedFile:
    """A file of an export with its digest.

    Attributes:
        file: the file.
        size: size in bytes.
        sha256: SHA-256 in hex.
        state: state of the file that was read; None for content that is in no file.
    """

    file: ExportFile
    size: int
    sha256: str
    state: FileState | None = None

    @property
    def path(self) -> str:
        """Relative path of the file in the destination, with `/`."""
        return self.file.path

    def blocks(self, size: int) -> Iterator[bytes]:
        """Yield the bytes in blocks of at most `size` bytes; check their SHA-256 at the end.

        Raises:
            ExportError: the file has changed since it was hashed; the caller must discard the blocks.
        """
        digest = hashlib.sha256()
        for block in self.file.blocks(size):
            digest.update(block)
            yield block
        if digest.hexdigest() != self.sha256:
            raise _changed(self.file)

    def check_unchanged(self, opened: BinaryIO) -> None:
        """Raise an ExportError if an open file is not, or not any more, the one that was hashed."""
        if get_state(opened) != self.state:
            raise _changed(self.file)


def hash_files(files: Sequence[ExportFile], progress: TransferProgress) -> tuple[HashedFile, ...]:
    """Read files, several at once; check their weights, and return them with their digests.

    Args:
        files: the files.
        progress: progress of the export; the bytes count in a phase of their own.

    Raises:
        ExportError: a weight is NaN or infinite, or a file changes while it is read.
    """
    reading = progress.create_phase("reading")

    def hash_file(file: ExportFile) -> HashedFile:
        if file.source is None:
            return hash_content(file)
        with file.source.open() as source:
            return hash_opened(file, source, source, lambda block: reading.add_bytes(len(block)))

    with reading.report_periodically():
        return map_files(hash_file, files)


def hash_content(file: ExportFile) -> HashedFile:
    """Return a file whose content is in memory with its digest."""
    return HashedFile(file, len(file.content), hashlib.sha256(file.content).hexdigest())


def hash_opened(
    file: ExportFile, source: BinaryIO, content: BinaryIO, take: Callable[[memoryview], object]
) -> HashedFile:
    """Read a file once; check its weights, and return it with its digest.

    Args:
        file: the file.
        source: the opened file.
        content: what is read, from its current position: `source` itself, or a clone of it.
        take: function that gets each block, which is valid during the call only.

    Raises:
        ExportError: a weight is NaN or infinite, or the file changes while it is read.
    """
    state, digest, size = get_state(source), hashlib.sha256(), 0
    check = FiniteCheck(str(file.source)) if file.path.endswith(".safetensors") else None
    for block in read_blocks(content):
        digest.update(block)
        if check:
            check.update(block)
        take(block)
        size += len(block)
    if get_state(source) != state or size != state[0]:
        raise _changed(file)
    return HashedFile(file, size, digest.hexdigest(), state)


def read_blocks(opened: BinaryIO) -> Iterator[memoryview]:
    """Yield the bytes of an open file; each block is valid until the next one."""
    buffer = memoryview(bytearray(PIECE_BYTES))
    while count := opened.readinto(buffer):  # type: ignore[attr-defined]
        yield buffer[:count]


def get_state(opened: BinaryIO) -> FileState:
    """Return the state of an open file, which changes with its content."""
    found = os.fstat(opened.fileno())
    return found.st_size, found.st_mtime_ns, found.st_ino


def map_files(function: Callable[[Any], T], files: Iterable[Any], at_once: int = FILES_AT_ONCE) -> tuple[T, ...]:
    """Return the results of a function for files, several at once; an error ends it."""
    with ThreadPoolExecutor(at_once) as threads:
        return tuple(threads.map(function, files))


def _changed(file: ExportFile) -> ExportError:
    return ExportError(
        f"{file.source or file.path} changed while it was exported",
        hint="let the fine-tune step end before the export",
    )
