"""Incomplete files of a fetch: their blocks arrive in any order, and are hashed in the file's order.

A file of several blocks has a map beside it, one byte for each block. A byte is set after the block is on disk. The
next fetch therefore reads these blocks from the disk, also after a crash of the node.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable

from trainjob.programs.fetch.folder import PIECE_BYTES, Folder
from trainjob.programs.fetch.listing import StoreFile
from trainjob.programs.fetch.record import RECORD_FOLDER

__all__ = ["BLOCK_BYTES", "PART_FOLDER", "PartFile", "count_blocks", "get_part_names"]

BLOCK_BYTES = 4 << 20
"""Size of a block; large enough that the time until a response begins does not count."""
PART_FOLDER = f"{RECORD_FOLDER}/parts"
"""Folder of the incomplete files and their maps, each named after the file's key and content."""
_DONE = b"\1"


def count_blocks(file: StoreFile) -> int:
    """Return the number of blocks of a file; an empty file has one."""
    return max(1, -(-file.size // BLOCK_BYTES))


def get_part_names(file: StoreFile) -> tuple[str, str]:
    """Return the names of an incomplete file and of its map, which differ for each content."""
    name = hashlib.sha256(f"{file.key} {file.mark}".encode()).hexdigest()[:32]
    return name, f"{name}.blocks"


class PartFile:
    """An incomplete file; for use from many threads.

    Args:
        folder: the folder to fill.
        file: the file.
    """

    def __init__(self, folder: Folder, file: StoreFile) -> None:
        self.file, self.blocks = file, count_blocks(file)
        self._folder = folder
        self.name, self._map_name = (f"{PART_FOLDER}/{name}" for name in get_part_names(file))
        self._lock, self._sync_lock = threading.Lock(), threading.Lock()
        # A file system lets one thread write to a file at a time. Without this lock, the others spin in the kernel.
        self._write_lock = threading.Lock()
        self._data = self._map = -1
        self._on_disk = b""
        self._written: list[int] = []
        self._pending: dict[int, memoryview] = {}
        self._hashed, self._is_hashing = 0, False
        self._sha256 = hashlib.sha256()
        self._blob = hashlib.sha1(b"blob %d\0" % file.size) if file.blob else None  # noqa: S324 - what git uses

    def open(self) -> None:
        """Open the file, or create it; do nothing if it is open."""
        with self._lock:
            if self._data >= 0:
                return
            self._data = self._folder.open_for_update(self.name)
            size = os.fstat(self._data).st_size
            if self.blocks > 1:
                self._map = self._folder.open_for_update(self._map_name)
                found = os.pread(self._map, self.blocks + 1, 0)
                if size == self.file.size and len(found) == self.blocks:
                    self._on_disk = found
                else:
                    os.truncate(self._map, 0)  # first, because the map must not describe other data
                    os.truncate(self._data, self.file.size)
                    os.truncate(self._map, self.blocks)
            elif size:
                os.truncate(self._data, 0)

    def offset(self, number: int) -> int:
        """Return where a block begins in the file."""
        return number * BLOCK_BYTES

    def size(self, number: int) -> int:
        """Return the size of a block in bytes."""
        return min(BLOCK_BYTES, self.file.size - self.offset(number))

    def has_on_disk(self, number: int) -> bool:
        """Return whether an earlier fetch has written a block."""
        return self._on_disk[number : number + 1] == _DONE

    def read(self, number: int, block: memoryview) -> None:
        """Read a block that an earlier fetch has written.

        Raises:
            OSError: the file cannot be read, or another program has shortened it.
        """
        done = 0
        while done < len(block):
            count = os.preadv(self._data, [block[done:]], self.offset(number) + done)
            if not count:
                raise OSError(errno.EIO, f"the incomplete file {self.name} has become shorter")
            done += count

    def write(self, offset: int, content: memoryview) -> None:
        """Write bytes to their place.

        Raises:
            OSError: the volume is full, or cannot be written.
        """
        done = 0
        while done < len(content):
            with self._write_lock:
                done += os.pwrite(self._data, content[done : done + PIECE_BYTES], offset + done)

    def complete(self, number: int) -> None:
        """Let the next [sync][] set a block in the map, because all its bytes are written."""
        with self._lock:
            self._written.append(number)

    def hash(self, number: int, block: memoryview, release: Callable[[memoryview], None]) -> bool:
        """Add a block to the digest as soon as all blocks before it are there.

        One thread hashes at a time; the others leave their blocks to it.

        Args:
            number: number of the block.
            block: its content.
            release: function that takes each block that is hashed.

        Returns:
            Whether all blocks are hashed now; True only once.
        """
        with self._lock:
            self._pending[number] = block
            if self._is_hashing:
                return False
            self._is_hashing = True
        while True:
            with self._lock:
                following = self._pending.pop(self._hashed, None)
                if following is None:
                    self._is_hashing = False
                    return self._hashed == self.blocks
            self._sha256.update(following)
            if self._blob:
                self._blob.update(following)
            release(following)
            self._hashed += 1  # without the lock, because only the thread that hashes reads it

    @property
    def sha256(self) -> str:
        """SHA-256 of the hashed blocks in hex."""
        return self._sha256.hexdigest()

    @property
    def blob(self) -> str:
        """Name as a git blob; empty if the store has listed none."""
        return self._blob.hexdigest() if self._blob else ""

    def sync(self) -> None:
        """Wait until the written blocks are on disk, and set them in the map."""
        with self._sync_lock:
            with self._lock:
                written, self._written = self._written, []
            if written and self._data >= 0:
                os.fdatasync(self._data)
                if self._map >= 0:
                    for number in written:
                        os.pwrite(self._map, _DONE, number)

    def close(self) -> None:
        """Close the file; it stays incomplete."""
        with self._sync_lock, self._lock:
            for descriptor in (self._data, self._map):
                if descriptor >= 0:
                    os.close(descriptor)
            self._data = self._map = -1

    def move_to(self, path: str) -> None:
        """Give the complete file its path."""
        self._folder.move(self.name, path)
        if self.blocks > 1:
            self._folder.unlink(self._map_name)

    def remove(self) -> None:
        """Remove the file, because its content is wrong."""
        if self.blocks > 1:
            self._folder.unlink(self._map_name)
        self._folder.unlink(self.name)
