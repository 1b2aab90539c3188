"""Files in a folder that other processes write to, without following symbolic links.

Every operation opens the folders of a path one by one, each relative to the previous one (openat(2) with O_NOFOLLOW). A
link that is created while the operation runs is therefore not followed either. The folder itself may be a link, or lie
below one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trainjob.errors import FetchError

__all__ = ["PIECE_BYTES", "Folder", "sync_file", "sync_path"]

PIECE_BYTES = 512 << 10
"""Bytes that are read and written at once.

Smaller pieces cost more calls: with 64 KiB, a fetch took 1.2 times the CPU time. Larger ones leave the processor's
cache before they are written, and get larger pages of the page cache, which are new to a virtual machine. A write of
4 MiB took up to 8 times the CPU time (ext4, Linux 6.18, AMD EPYC).
"""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK, because opening a named pipe would wait for the other end.
_FILE_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@dataclass(frozen=True)
class Folder:
    """A folder whose files have relative paths with `/`.

    The paths follow the rules of [trainjob.programs.fetch.names][].

    Attributes:
        path: path of the folder.
    """

    path: Path

    def size(self, name: str) -> int | None:
        """Return the size of a regular file in bytes; None if no regular file has this name.

        Raises:
            FetchError: a folder on the path is a symbolic link.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._open_parent(name) as (parent, last):
            return _regular_size(parent, last)
        return None

    def list_usage(self, folder: str) -> dict[str, int]:
        """Return the bytes on disk of the regular files in a subfolder, by name.

        A sparse file has fewer than its size.

        Raises:
            FetchError: a folder on the path is a symbolic link.
        """
        try:
            with self._open_parent(f"{folder}/.") as (parent, _), os.scandir(parent) as entries:
                found = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {name: 512 * status.st_blocks for name, status in found.items() if stat.S_ISREG(status.st_mode)}

    def get_free_bytes(self) -> int | None:
        """Return the free bytes of the volume; None if its file system does not say so."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize if found.f_blocks else None

    @contextlib.contextmanager
    def lock(self, name: str, report_wait: Callable[[], None]) -> Iterator[int]:
        """Hold the lock of a file, and yield its descriptor.

        A process that ends, or whose node is lost, releases it. The holder may remove the file.

        Args:
            name: name of the file, which is created if it is missing.
            report_wait: function that is called if another process holds the lock, before the wait for it.
        """
        while True:
            handle = self.open_for_update(name)
            try:
                _lock(handle, report_wait)
                if self._is_at(name, handle):
                    yield handle
                    return
            finally:
                os.close(handle)

    def open_for_reading(self, name: str) -> BinaryIO:
        """Open a file for reading.

        Raises:
            FetchError: a folder on the path is a symbolic link.
        """
        with self._open_parent(name) as (parent, last):
            return os.fdopen(os.open(last, os.O_RDONLY | _FILE_FLAGS, dir_fd=parent), "rb")

    def open_for_appending(self, name: str) -> BinaryIO:
        """Open a regular file for appending; replace anything else that has its name.

        Missing folders on the path are created.

        Raises:
            FetchError: a folder on the path is a symbolic link.
        """
        return os.fdopen(self._open_or_create(name, os.O_WRONLY | os.O_APPEND), "ab")

    def open_for_update(self, name: str) -> int:
        """Open a regular file for reads and writes at any place, and return its descriptor.

        Anything else that has its name is replaced. Missing folders on the path are created.

        Raises:
            FetchError: a folder on the path is a symbolic link.
        """
        return self._open_or_create(name, os.O_RDWR)

    def move(self, source: str, target: str) -> None:
        """Rename a file, and replace an existing file or symbolic link of the new name.

        Raises:
            FetchError: a folder on the path is a symbolic link.
        """
        with (
            self._open_parent(source) as (source_parent, source_last),
            self._open_parent(target, create=True) as (parent, last),
        ):
            os.rename(source_last, last, src_dir_fd=source_parent, dst_dir_fd=parent)

    def remove(self, name: str) -> None:
        """Remove a file or a link if it exists, then the folders on its path that are now empty.

        No other thread may create a file in these folders meanwhile.

        Raises:
            FetchError: a folder on the path is a symbolic link, or a folder has this name.
        """
        if self.unlink(name):
            self._remove_empty(name.rpartition("/")[0])

    def unlink(self, name: str) -> bool:
        """Remove a file or a link, and return whether it existed.

        Raises:
            FetchError: a folder on the path is a symbolic link, or a folder has this name.
        """
        try:
            with self._open_parent(name) as (parent, last):
                os.unlink(last, dir_fd=parent)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except IsADirectoryError:
            message = f"{self.path / name} is a folder, but the fetch writes a file of this name"
            raise FetchError(message, hint="move or remove the folder") from None
        return True

    def clear(self, folder: str, keep: Container[str] = ()) -> None:
        """Remove the regular files in a subfolder, and the subfolder if it is then empty.

        Args:
            folder: path of the subfolder.
            keep: names of files that stay.
        """
        for name in self.list_usage(folder):
            if name not in keep:
                self.remove(f"{folder}/{name}")
        self._remove_empty(folder)

    def _is_at(self, name: str, handle: int) -> bool:
        """Return whether an open file still has this name."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), self._open_parent(name) as (parent, last):
            return os.path.samestat(os.stat(last, dir_fd=parent, follow_symlinks=False), os.fstat(handle))
        return False

    def _open_or_create(self, name: str, flags: int) -> int:
        with self._open_parent(name, create=True) as (parent, last):
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(last, dir_fd=parent, follow_symlinks=False)
                if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:  # may be linked from outside
                    os.unlink(last, dir_fd=parent)
            return os.open(last, flags | os.O_CREAT | _FILE_FLAGS, 0o666, dir_fd=parent)

    def _remove_empty(self, folder: str) -> None:
        with contextlib.suppress(OSError):  # it is not empty, or another worker has removed it
            while folder:
                with self._open_parent(folder) as (parent, last):
                    os.rmdir(last, dir_fd=parent)
                folder = folder.rpartition("/")[0]

    @contextlib.contextmanager
    def _open_parent(self, name: str, *, create: bool = False) -> Iterator[tuple[int, str]]:
        """Open the folder of a file; yield its descriptor and the last component of the name."""
        *folders, last = name.split("/")
        if create:
            self.path.mkdir(parents=True, exist_ok=True)
        here = os.open(self.path, _FOLDER_FLAGS)
        try:
            for number, folder in enumerate(folders):
                if create:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(folder, dir_fd=here)
                below = self._enter(here, folder, "/".join(folders[: number + 1]))
                os.close(here)
                here = below
            yield here, last
        finally:
            os.close(here)

    def _enter(self, parent: int, folder: str, name: str) -> int:
        try:
            return os.open(folder, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
        except OSError as failure:
            # Linux: ENOTDIR with O_DIRECTORY, ELOOP without (open(2)).
            if failure.errno not in (errno.ELOOP, errno.ENOTDIR) or not _is_link(parent, folder):
                raise
        raise FetchError(
            f"{self.path / name} is a symbolic link, which is not followed",
            hint=f"remove the link; {self.path} itself may be one",
        )


def sync_file(file: BinaryIO) -> None:
    """Wait until the data written to an open file is on disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Wait until a file or a folder is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lock(handle: int, report_wait: Callable[[], None]) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        report_wait()
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as failure:
        if failure.errno not in (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP):  # a file system without locks
            raise


def _regular_size(parent: int, name: str) -> int | None:
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _is_link(parent: int, name: str) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
