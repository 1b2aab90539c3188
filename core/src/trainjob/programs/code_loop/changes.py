"""Changes of a project since its archive was packed, which the kubelet puts into a folder of the pod.

The folder has two files. `changes.json` has the number of the generation, the SHA-256 of the other file, and the names
of the deleted files. `changes.tar.gz` has all files that differ from the archive, as `trainjob.project_code` packs
them. Each generation replaces the one before it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from trainjob.programs.code.archive import unpack
from trainjob.programs.code.failure import CodeFailure

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ARCHIVE_FILE", "INFORMATION_FILE", "Changes", "ChangesFolder", "ChangingProject"]

INFORMATION_FILE, ARCHIVE_FILE = "changes.json", "changes.tar.gz"
"""Names of the files in the folder."""
_CACHE = b"__pycache__"


class Changes(NamedTuple):
    """The changes of one generation.

    Attributes:
        generation: their number, from 1.
        files: folder with the files that differ from the archive, which the reader deletes.
        deleted: names of the files of the archive that do not exist any more.
    """

    generation: int
    files: Path
    deleted: list[str]


class ChangesFolder:
    """The folder in which the kubelet replaces the changes.

    Args:
        path: the folder; it may be empty.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, ...] | None = None

    def poll(self) -> Changes | None:
        """Return the changes if they are others than at the last call, else None.

        Raises:
            CodeFailure: the changes are damaged; the next call waits for others.
        """
        found = self._identify()
        if found is None or found == self._seen:
            return None
        try:
            information = json.loads((self._path / INFORMATION_FILE).read_text("utf-8"))
            folder, _ = unpack(str(self._path / ARCHIVE_FILE), information["sha256"])
        except (OSError, ValueError, KeyError, CodeFailure) as error:
            if self._identify() != found:  # the kubelet has replaced the files in the meantime
                return None
            self._seen = found
            raise CodeFailure(f"the changes cannot be read: {error}") from error
        self._seen = found
        return Changes(information["generation"], Path(folder), information["deleted"])

    def _identify(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self._path / INFORMATION_FILE)  # noqa: PTH116
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


class ChangingProject:
    """An unpacked project to which changes are applied.

    File names are bytes, as in `trainjob.programs.code.archive`.

    Args:
        folder: folder of the project, as its archive was unpacked.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = os.fsencode(folder)
        self._originals = os.fsencode(tempfile.mkdtemp(prefix="trainjob-originals-"))
        self._changed: list[bytes] = []
        # Python takes a .pyc for valid if size and time, in whole seconds, of the source are those of its compilation.
        # So each generation has a time of its own.
        self._time = int(time.time()) + 1

    def apply(self, changes: Changes) -> None:
        """Make the files of the project those of the archive with these changes.

        What a run has written beside them stays.

        Raises:
            CodeFailure: a file cannot be written. The next call starts from the archive's files again.
        """
        moment = self._time + changes.generation
        incoming = os.fsencode(changes.files)
        try:
            self._restore(moment)
            added = list(_list_files(incoming))
            self._changed = [*(name.encode("utf-8", "surrogateescape") for name in changes.deleted), *added]
            for name in self._changed:
                self._set_aside(name)
            for name in added:
                _move(_join(incoming, name), _join(self._folder, name), moment)
        except OSError as error:
            raise CodeFailure(f"change {changes.generation} cannot be applied: {error}") from error
        finally:
            shutil.rmtree(incoming, ignore_errors=True)

    def _restore(self, moment: int) -> None:
        """Return to the files of the archive."""
        for name in reversed(self._changed):  # the added first: a link may be in place of a folder
            path = _join(self._folder, name)
            if os.path.lexists(path) and not _is_folder(path):
                os.unlink(path)  # noqa: PTH108 - paths are bytes
                self._remove_empty_folders(name)
        for name in list(_list_files(self._originals)):
            _move(_join(self._originals, name), _join(self._folder, name), moment)
        self._changed = []

    def _set_aside(self, name: bytes) -> None:
        path = _join(self._folder, name)
        if _is_folder(path):  # of files that were deleted, or that a run has written
            shutil.rmtree(path)
        elif os.path.lexists(path):
            _move(path, _join(self._originals, name), None)
            self._remove_empty_folders(name)

    def _remove_empty_folders(self, name: bytes) -> None:
        """Remove the folders of a file that have only compiled modules.

        Python would import them as packages.
        """
        folder = os.path.dirname(name)  # noqa: PTH120
        while folder:
            path = _join(self._folder, folder)
            if {*os.listdir(path)} - {_CACHE}:  # noqa: PTH208
                return
            shutil.rmtree(path)
            folder = os.path.dirname(folder)  # noqa: PTH120


def _list_files(top: bytes) -> Iterator[bytes]:
    """Yield the relative paths of the files and links of a folder."""
    for parent, folders, files in os.walk(top):
        links = [name for name in folders if os.path.islink(_join(parent, name))]  # noqa: PTH114
        for name in [*files, *links]:
            yield os.path.relpath(_join(parent, name), top)


def _move(source: bytes, target: bytes, moment: int | None) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
    os.replace(source, target)  # noqa: PTH105 - both are in the folder for temporary files
    if moment is not None and not os.path.islink(target):  # noqa: PTH114
        os.utime(target, (moment, moment))


def _is_folder(path: bytes) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)  # noqa: PTH112, PTH114


def _join(folder: bytes, name: bytes) -> bytes:
    return os.path.join(folder, name)  # noqa: PTH118
