"""Fetches from a PersistentVolumeClaim or an image that is mounted into the pod.

Symbolic links are followed if they stay in the mounted folder, such as those of a cache of huggingface_hub, whose
snapshots are links to `blobs/`.
"""

from __future__ import annotations

import functools
import io
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from trainjob.errors import FetchError
from trainjob.programs.fetch.folder import PIECE_BYTES, Folder
from trainjob.programs.fetch.listing import Listing, StoreFile, compute_digests
from trainjob.programs.fetch.names import join_names
from trainjob.programs.fetch.record import RECORD_FOLDER
from trainjob.programs.fetch.transfer import ReaderFactory

__all__ = ["MountedSource", "find_models"]

_LEFT_OUT = (RECORD_FOLDER, "lost+found")  # the record of another fetch; ext4's own folder, which only root can read
_MODELS = "models"  # folder of the files in a modelcar of KServe 0.15
_LONGEST_LIST = 10  # names in a message


@dataclass(frozen=True)
class MountedSource:
    """A folder, or one file, in a mounted claim or image.

    Attributes:
        root: folder at which the claim or the image is mounted, without symbolic links.
        path: path in it; empty for everything.
        uri: the address, for messages.
    """

    root: Path
    path: str
    uri: str
    connections = 4

    def list_files(self) -> Listing:
        """Return the regular files.

        Raises:
            FetchError: nothing is mounted, the path does not exist, or a symbolic link is broken or leads out.
        """
        if not self.root.is_dir():
            raise FetchError(
                f"{self} is not mounted in this pod",
                hint="image volumes need Kubernetes 1.35, or 1.33 with the feature gate ImageVolume, and the laptop "
                "cluster has none: fetch from a store or a PersistentVolumeClaim",
            )
        start = self.root / self.path
        if not start.exists() and not start.is_symlink():
            raise FetchError(f"{self} does not exist; {self._describe_parent(start)}", hint="correct the path")
        files = self._find_files(start, "" if start.is_dir() else start.name, ())
        return Listing(tuple(sorted(files, key=lambda file: file.path)))

    def create_readers(self, revision: str) -> ReaderFactory:  # noqa: ARG002 - a folder has none
        """Return the factory of readers."""
        return functools.partial(_FileReader, self)

    def open(self, file: StoreFile) -> BinaryIO:
        """Open a file for reading."""
        # Only links that are resolved here are followed, so one that is created meanwhile does not lead out.
        return Folder(self.root).open_for_reading(self._show(self._resolve(self.root / file.key)))

    def add_digest(self, file: StoreFile, *, has_arrived: bool) -> StoreFile:
        """Return the file with the digest of its content.

        A file that has just been copied is not read a second time: the copy was hashed while it was read.
        """
        if has_arrived:
            return file
        with self.open(file) as source:
            return replace(file, sha256=compute_digests(source, file.size)[0])

    def to_error(self, failure: Exception) -> FetchError:
        """Return the error for a failure of a file operation: one sentence, and a hint."""
        hint = "the step may be repeated at any time"
        if isinstance(failure, PermissionError):
            hint = "let the pod run as a user or group that can read it: placement.security_context"
        return FetchError(f"{self} can't be fetched: {type(failure).__name__}: {failure}", hint=hint)

    def __str__(self) -> str:
        return self.uri

    def _find_files(self, path: Path, name: str, above: tuple[Path, ...]) -> Iterator[StoreFile]:
        """Yield the file at a path, or those in its folder.

        Args:
            path: the path, which may have symbolic links.
            name: path of the file or the folder below the target folder; empty for the target folder itself.
            above: the folders that lead to the path, without symbolic links.
        """
        real = self._resolve(path)
        found = real.stat()
        if stat.S_ISREG(found.st_mode):
            yield StoreFile(name, self._show(path), found.st_size, _mark(found))
        elif stat.S_ISDIR(found.st_mode):
            if real in above:
                raise self._link_error(path, "leads to a folder that contains it")
            for entry in path.iterdir():
                if entry.name not in _LEFT_OUT:
                    yield from self._find_files(entry, f"{name}/{entry.name}".lstrip("/"), (*above, real))

    def _resolve(self, path: Path) -> Path:
        """Return a path without symbolic links."""
        try:
            real = Path(os.path.realpath(path, strict=True))
        except OSError as failure:
            if isinstance(failure, PermissionError):
                raise
            raise self._link_error(path, "is broken") from failure
        if not real.is_relative_to(self.root):
            raise self._link_error(path, "leads out of what is mounted")
        return real

    def _link_error(self, path: Path, problem: str) -> FetchError:
        shown = f"{self._show(path)} -> {path.readlink()}" if path.is_symlink() else self._show(path)
        hint = "replace the link by its file, or name another folder"
        return FetchError(f"{self}: the symbolic link {shown} {problem}", hint=hint)

    def _describe_parent(self, path: Path) -> str:
        """Return which files there are in the last folder of a path that exists."""
        parent = next(folder for folder in path.parents if folder.is_dir())
        names = sorted(entry.name for entry in self._resolve(parent).iterdir())
        return f"{self._show(parent)} has {join_names(names, _LONGEST_LIST) or 'no files'}"

    def _show(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()


class _FileReader:
    """A reader of parts of mounted files; it keeps the last file open."""

    def __init__(self, source: MountedSource, *, is_sequential: bool) -> None:  # noqa: ARG002
        self._source = source
        self._key = ""
        self._file: BinaryIO = io.BytesIO()

    def read_into(self, file: StoreFile, offset: int, buffer: memoryview) -> int:
        """Fill the beginning of the buffer from an offset on, and return the number of bytes.

        Raises:
            FetchError: the file has changed.
            OSError: the file cannot be read.
        """
        if file.key != self._key:
            self.close()
            self._key, self._file = file.key, self._source.open(file)
        count = os.preadv(self._file.fileno(), [buffer[:PIECE_BYTES]], offset)
        if not count or _mark(os.fstat(self._file.fileno())) != file.mark:
            raise FetchError(f"{file.key} of {self._source} changed while it was fetched", hint="repeat the step")
        return count

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def abort(self) -> None:
        """Do nothing, because a read of a file can't be ended."""


def find_models(root: Path) -> str:
    """Return the folder of an image that has the files; empty for the whole image."""
    return _MODELS if (root / _MODELS).is_dir() else ""


def _mark(found: os.stat_result) -> str:
    # Images often have one mtime for all files of all versions. The ctime is that of the file on this volume.
    return f"{found.st_mtime_ns}-{found.st_ctime_ns}"
