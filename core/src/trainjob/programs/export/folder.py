"""Exports into a folder: files are copied next to it, and then replace it in one step.

No reader therefore sees a partly copied model. Each file is read once: its digest is that of the copy. A file system
that can clone files (XFS, Btrfs, some NFS servers) writes none of their bytes.

A run that is killed leaves the copy next to the folder (`.NAME.export`), and the record of its complete files
(`.NAME.export.jsonl`). The next run continues with them, and does not read the recorded files again. The record is
also the lock of the export, so two exports into one folder run one after the other.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trainjob.errors import ExportError
from trainjob.programs.export.hashed_file import (
    FileState,
    HashedFile,
    get_state,
    hash_content,
    hash_files,
    hash_opened,
    map_files,
    read_blocks,
)
from trainjob.programs.export.layout import MANIFEST, ExportFile
from trainjob.programs.export.manifest_file import BuildContent, ExportContent, parse_manifest_files
from trainjob.programs.fetch.folder import Folder, sync_file, sync_path
from trainjob.programs.fetch.progress import TransferProgress, format_size

__all__ = ["FolderTarget"]

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755  # weights saved 0600 could not be read by pods with another user id
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
_FICLONE = 0x40049409  # ioctl_ficlone(2); fcntl.FICLONE exists since Python 3.12
_EARLY_BYTES = 8 << 20  # large enough for whole extents
_FULL_ADVICE = "enlarge the PersistentVolumeClaim, or remove files from it; the export then continues"


@dataclass(frozen=True)
class FolderTarget:
    """A folder on a mounted volume."""

    path: Path

    def overlaps(self, folder: Path) -> bool:
        """Return whether the target and `folder` are the same, or one contains the other."""
        target, other = self.path.resolve(), folder.resolve()
        return target == other or target in other.parents or other in target.parents

    def send(
        self, files: Sequence[ExportFile], build: BuildContent, progress: TransferProgress
    ) -> tuple[ExportContent, str]:
        """Copy the files and put them in place; return their content and an empty revision.

        If the target already has the same content, nothing is changed.

        Raises:
            ExportError: the target exists and is not an earlier export, or it is a mount point; the volume is full; or
                a file cannot be exported.
            OSError: the volume is read-only or does not allow the write.
        """
        target = self.path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        staging, retired = (target.with_name(f".{target.name}.{kind}") for kind in ("export", "replaced"))
        parent, record_name = Folder(target.parent), f"{staging.name}.jsonl"
        note = f"another export writes to {target}: waiting for its end"
        with parent.lock(record_name, lambda: progress.report(note)) as handle:
            try:
                if retired.is_dir() and not retired.is_symlink() and not target.exists():
                    retired.rename(target)
                content = _find_content(target, files, build, progress)
                if content is None:
                    _check_replaceable(target)
                    content = _fill(staging, files, build, _CopyRecord(handle), progress)
                    _put_in_place(staging, target, retired)
                for leftover in (staging, retired):
                    shutil.rmtree(leftover, ignore_errors=True)
            except OSError as failure:
                if failure.errno in (errno.ENOSPC, errno.EDQUOT):
                    reason = failure.strerror or failure
                    raise ExportError(f"the volume of {target} is full: {reason}", hint=_FULL_ADVICE) from failure
                raise
            finally:
                if not staging.exists():
                    parent.unlink(record_name)
        return content, ""


class _CopyRecord:
    """The record of the files that are complete in an unfinished copy.

    Args:
        handle: descriptor of the record's file.
    """

    def __init__(self, handle: int) -> None:
        self._handle, self._lock = handle, threading.Lock()
        self._entries = {}
        for line in os.pread(handle, os.fstat(handle).st_size, 0).splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):  # a killed export leaves an incomplete line
                entry = json.loads(line)
                self._entries[str(entry["path"])] = entry
        os.lseek(handle, 0, os.SEEK_END)

    def find_digest(self, path: str, source: FileState, copy: FileState) -> str:
        """Return the SHA-256 of a file if neither it nor its copy has changed; empty otherwise."""
        found = self._entries.get(path, {})
        is_same = (found.get("source"), found.get("copy")) == ([*source], [*copy])
        return str(found["sha256"]) if is_same else ""

    def add(self, file: HashedFile, copy: FileState) -> None:
        """Record a file whose copy is on disk."""
        entry = {"path": file.path, "sha256": file.sha256, "source": file.state, "copy": copy}
        with self._lock:
            os.write(self._handle, f"\n{json.dumps(entry)}\n".encode())


def _find_content(
    target: Path, files: Sequence[ExportFile], build: BuildContent, progress: TransferProgress
) -> ExportContent | None:
    """Return the content of the files if the target has it already, else None.

    The files are read only if the target has their names and sizes.
    """
    wanted = {file.path for file in files} | {MANIFEST}
    folder = Folder(target)
    if not (target.is_dir() and _names(target) == wanted and all(folder.size(f.path) == f.get_size() for f in files)):
        return None
    content = build(hash_files(files, progress))
    comparing = progress.create_phase("comparing")
    with comparing.report_periodically():
        if not all(map_files(lambda file: _is_same(folder, file, comparing), content.all_files)):
            return None
    for file in content.all_files:
        progress.report_file(file.path, file.size, moved=False)
    return content


def _check_replaceable(target: Path) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise ExportError(f"{target} is a file", hint="name a folder")
    if target.is_mount():
        raise ExportError(
            f"{target} is the root of a volume, which cannot be replaced in one step",
            hint=f"name a folder below it: {target}/model",
        )
    if (target / MANIFEST).is_file():
        parse_manifest_files((target / MANIFEST).read_bytes())
    elif any(target.iterdir()):
        raise ExportError(
            f"{target} is not empty and contains no earlier export", hint="name another folder, or empty it"
        )


def _names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def _is_same(folder: Folder, file: HashedFile, progress: TransferProgress) -> bool:
    digest = hashlib.sha256()
    with folder.open_for_reading(file.path) as found:
        for block in read_blocks(found):
            digest.update(block)
            progress.add_bytes(len(block))
    return digest.hexdigest() == file.sha256


def _fill(
    staging: Path,
    files: Sequence[ExportFile],
    build: BuildContent,
    record: _CopyRecord,
    progress: TransferProgress,
) -> ExportContent:
    """Fill `staging` with the files and their manifest only, and write it to disk."""
    _make_folder(staging)
    _remove_others(staging, {file.path for file in files})
    copies = _Copies(Folder(staging), record, progress)
    copies.make_space(files)
    with progress.report_periodically():
        try:
            copied = map_files(copies.copy, files)
        except ExportError:  # the next export has other files
            shutil.rmtree(staging, ignore_errors=True)
            raise
    content = build(copied)
    copies.write(content.manifest)
    for _, _, _, folder in os.fwalk(staging, topdown=False):
        os.fchmod(folder, _FOLDER_MODE)
        os.fsync(folder)
    return content


@dataclass(frozen=True)
class _Copies:
    """The copies in an unfinished export."""

    folder: Folder
    record: _CopyRecord
    progress: TransferProgress

    def copy(self, file: ExportFile) -> HashedFile:
        """Copy a file, and return it with the digest of the copy."""
        if file.source is None:
            hashed = hash_content(file)
            self.write(hashed)
            return hashed
        with file.source.open() as source:
            if known := self._find(file, source):
                self.progress.report_file(file.path, known.size, moved=False)
                return known
            # Do not use a hard link: a later run would write into the exported file.
            with self._create(file.path) as target:
                content, write = (target, None) if _clone(source, target) else (source, _write_early(target))

                def take(block: memoryview) -> None:
                    if write:
                        write(block)
                    self.progress.add_bytes(len(block))

                hashed = hash_opened(file, source, content, take)
                self._finish(target)
                self.record.add(hashed, get_state(target))
        self.progress.report_file(file.path, hashed.size)
        return hashed

    def write(self, file: HashedFile) -> None:
        """Write a file whose content is in memory."""
        with self._create(file.path) as target:
            target.write(file.file.content)
            self._finish(target)
        self.progress.add_bytes(file.size)
        self.progress.report_file(file.path, file.size)

    def make_space(self, files: Sequence[ExportFile]) -> None:
        """Remove incomplete copies; raise an OSError if the missing files have no space."""
        missing = 0
        for file in files:
            if file.source:
                with file.source.open() as source:
                    if not self._find(file, source):
                        self.folder.unlink(file.path)
                        missing += get_state(source)[0]
        free = self.folder.get_free_bytes()
        if free is not None and missing > free and not any(map(self._can_clone, files)):
            needed = f"the export needs {format_size(missing)}, and {format_size(free)} are left"
            raise OSError(errno.ENOSPC, needed)

    def _can_clone(self, file: ExportFile) -> bool:
        if file.source is None or self.folder.size(file.path) is not None:
            return False
        with file.source.open() as source, self._create(file.path) as target:
            can_clone = _clone(source, target)
        self.folder.unlink(file.path)
        return can_clone

    def _find(self, file: ExportFile, source: BinaryIO) -> HashedFile | None:
        """Return a file whose recorded copy is complete; None for another."""
        if self.folder.size(file.path) is None:
            return None
        with self.folder.open_for_reading(file.path) as copy:
            state = get_state(source)
            sha256 = self.record.find_digest(file.path, state, get_state(copy))
        return HashedFile(file, state[0], sha256, state) if sha256 else None

    def _create(self, path: str) -> BinaryIO:
        self.folder.unlink(path)
        return os.fdopen(self.folder.open_for_update(path), "r+b")

    def _finish(self, target: BinaryIO) -> None:
        os.fchmod(target.fileno(), _FILE_MODE)
        sync_file(target)


def _write_early(target: BinaryIO) -> Callable[[memoryview], None]:
    """Return a function that appends to a file, and lets the disk begin before the end."""
    begin = end = 0

    def write(block: memoryview) -> None:
        nonlocal begin, end
        target.write(block)
        end += len(block)
        if end - begin >= _EARLY_BYTES:
            # Linux starts to write these pages, and keeps those that are not on disk yet (mm/fadvise.c).
            os.posix_fadvise(target.fileno(), begin, end - begin, os.POSIX_FADV_DONTNEED)
            begin = end

    return write


def _clone(source: BinaryIO, target: BinaryIO) -> bool:
    """Let an empty file share the bytes of another, and return whether the file system can."""
    try:
        fcntl.ioctl(target, _FICLONE, source.fileno())
    except OSError:
        return False
    return True


def _remove_others(staging: Path, wanted: set[str]) -> None:
    """Remove all but the wanted regular files, and the folders that are then empty.

    Symbolic links are removed, because they could point outside. fwalk does not follow them, even if another process
    creates them during the walk.
    """
    for path, folders, files, folder in os.fwalk(staging, topdown=False):
        for name in files + folders:
            mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                with contextlib.suppress(OSError):  # it is not empty
                    os.rmdir(name, dir_fd=folder)
            elif not stat.S_ISREG(mode) or (Path(path) / name).relative_to(staging).as_posix() not in wanted:
                os.unlink(name, dir_fd=folder)


def _make_folder(path: Path) -> None:
    if path.is_file() or path.is_symlink():
        path.unlink()
    path.mkdir(parents=True, exist_ok=True)


def _put_in_place(staging: Path, target: Path, retired: Path) -> None:
    shutil.rmtree(retired, ignore_errors=True)
    if not target.exists() or not any(target.iterdir()):
        staging.rename(target)  # replaces an empty folder, too: POSIX rename
    elif not _exchange(staging, target):
        # On file systems such as NFS, the target does not exist for a moment. If a run is killed here, the next run
        # restores it.
        target.rename(retired)
        staging.rename(target)
    sync_path(target.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders atomically if the system can, and return whether it did.

    Linux has renameat2 for this.
    """
    renameat2: Callable[..., int] | None = None
    with contextlib.suppress(OSError, AttributeError):
        renameat2 = ctypes.CDLL(None).renameat2
    if renameat2 is None:
        return False
    return renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0
