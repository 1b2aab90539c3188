"""Exports into a folder: files are copied next to it, and then replace it in one step.

No reader therefore sees a partly copied model. A run that is killed leaves the copy next to the folder
(`.NAME.export`). The next run continues with the files in this copy.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainjob.errors import ExportError
from trainjob.programs.export.layout import MANIFEST
from trainjob.programs.export.manifest_file import ExportContent, HashedFile, parse_manifest_files
from trainjob.programs.export.receipt import ExportProgress
from trainjob.programs.fetch.folder import Folder, sync_file, sync_path
from trainjob.programs.fetch.listing import compute_digests

__all__ = ["FolderTarget"]

_FILE_MODE, _FOLDER_MODE = 0o644, 0o755  # weights saved 0600 could not be read by pods with another user id
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class FolderTarget:
    """A folder on a mounted volume."""

    path: Path

    def overlaps(self, folder: Path) -> bool:
        """Return whether the target and `folder` are the same, or one contains the other."""
        target, other = self.path.resolve(), folder.resolve()
        return target == other or target in other.parents or other in target.parents

    def send(self, content: ExportContent, progress: ExportProgress) -> str:
        """Copy the missing files and put them in place, and return an empty revision.

        If the target already has the same content, nothing is changed.

        Raises:
            ExportError: the target exists and is not an earlier export, or it is a mount point.
            OSError: the volume is full, is read-only or does not allow the write.
        """
        target = self.path.resolve()
        staging, retired = (target.with_name(f".{target.name}.{kind}") for kind in ("export", "replaced"))
        target.parent.mkdir(parents=True, exist_ok=True)
        if retired.is_dir() and not retired.is_symlink() and not target.exists():
            retired.rename(target)
        sent = not _has_content(target, content)
        if sent:
            _check_replaceable(target)
            _fill(staging, content, progress)
            _put_in_place(staging, target, retired)
        else:
            _report_all(content, progress)
        for leftover in (staging, retired):
            shutil.rmtree(leftover, ignore_errors=True)
        return ""


def _report_all(content: ExportContent, progress: ExportProgress) -> None:
    for file in content.all_files:
        progress.report_file(file.path, file.size, sent=False)


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


def _has_content(folder: Path, content: ExportContent) -> bool:
    wanted = {file.path for file in content.all_files}
    return (
        folder.is_dir()
        and _names(folder) == wanted
        and all(_is_same(Folder(folder), file) for file in content.all_files)
    )


def _names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def _is_same(folder: Folder, file: HashedFile) -> bool:
    if folder.size(file.path) != file.size:
        return False
    with folder.open_for_reading(file.path) as found:
        return compute_digests(found, file.size)[0] == file.sha256


def _fill(staging: Path, content: ExportContent, progress: ExportProgress) -> None:
    """Fill `staging` with exactly the files of the content, and wait until they are on disk."""
    _make_folder(staging)
    _remove_others(staging, {file.path for file in content.all_files})
    target = Folder(staging)
    for file in content.all_files:
        sent = not _is_same(target, file)
        if sent:
            _copy(file, target)
        with target.open_for_reading(file.path) as copied:
            os.fchmod(copied.fileno(), _FILE_MODE)
        progress.report_file(file.path, file.size, sent=sent)
    for _, _, _, folder in os.fwalk(staging, topdown=False):
        os.fchmod(folder, _FOLDER_MODE)
        os.fsync(folder)


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


def _copy(file: HashedFile, folder: Folder) -> None:
    folder.remove(file.path)
    # Do not use a hard link: a later run would write into the exported file.
    with folder.open_for_appending(file.path) as target:
        for block in file.blocks():
            target.write(block)
        sync_file(target)


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
