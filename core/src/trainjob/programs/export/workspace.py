"""The files of a workspace, opened without following a link out of it.

Other processes may write to the workspace during an export. A process that replaces a file by a link, for example to
this step's credentials in `/proc/self/environ`, must not get the link's target exported.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from trainjob.errors import ExportError, FetchError
from trainjob.programs.fetch.folder import Folder

__all__ = ["SourceFile", "Workspace"]

# What open(2) reports if another process has replaced or removed a file.
_REPLACED = (errno.ELOOP, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)


@dataclass(frozen=True)
class SourceFile:
    """A regular file in a workspace.

    Attributes:
        folder: a folder of the workspace.
        name: path of the file below `folder`, with `/` and without links.
    """

    folder: Path
    name: str

    def __str__(self) -> str:
        return str(self.folder / self.name)

    def open(self) -> BinaryIO:
        """Open the file for reading, without following links below the folder of the workspace.

        Raises:
            ExportError: it is not a regular file any more, or a folder on its path is a link.
        """
        try:
            file = Folder(self.folder).open_for_reading(self.name)
        except FetchError:
            raise self._replaced() from None
        except OSError as failure:
            if failure.errno in _REPLACED:
                raise self._replaced() from None
            raise
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise self._replaced()
        return file

    def get_size(self) -> int:
        """Return the size in bytes."""
        with self.open() as file:
            return os.fstat(file.fileno()).st_size

    def _replaced(self) -> ExportError:
        return ExportError(
            f"{self} was replaced while it was exported", hint="let the fine-tune step end before the export"
        )


@dataclass(frozen=True)
class Workspace:
    """The folders from which an export may copy files.

    Attributes:
        folders: paths of the folders, without links.
    """

    folders: tuple[Path, ...]

    @classmethod
    def enclosing(cls, output: Path, model: Path) -> Workspace:
        """Return the closest folder that contains both, or both if only the root does."""
        both = [output.absolute(), model.absolute()]
        shared = Path(os.path.commonpath(both))
        return cls(tuple(folder.resolve() for folder in (both if shared == shared.parent else [shared])))

    def find(self, path: Path) -> SourceFile:
        """Return the file at a path; links within the workspace are followed here, once.

        Such links are allowed, because the Hugging Face cache keeps files in this way.

        Raises:
            ExportError: the path is a link out of the workspace; the message names the link and its target.
        """
        real = path.resolve()
        for folder in self.folders:
            if folder in real.parents:
                return SourceFile(folder, real.relative_to(folder).as_posix())
        raise ExportError(
            f"{path} is a link to {real}, outside the workspace", hint="put the file itself into the workspace"
        )
