"""Cache of resolved lists and installed packages, which pods share without a lock.

Each entry is a folder that is written beside its place and then renamed, so an entry is complete if it exists. Of two
pods that write the same entry, the first one wins.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PackageCache"]

_DAY = 86_400  # seconds
_UNFINISHED = "unfinished-"


class PackageCache:
    """A folder with entries; a temporary one if no folder is given.

    Attributes:
        folder: the folder; it exists.
    """

    def __init__(self, folder: str | None) -> None:
        self.folder = Path(folder or tempfile.mkdtemp(prefix="trainjob-packages-")).absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        if not folder:
            self.folder.chmod(0o755)

    def get(self, name: str) -> Path | None:
        """Return the folder of an entry, and mark it as used; None if it does not exist."""
        entry = self.folder / name
        if not entry.is_dir():
            return None
        with suppress(OSError):  # another user's; if it is removed too early, it is installed again
            os.utime(entry)
        return entry

    def get_or_create(self, name: str, fill: Callable[[Path], None]) -> Path:
        """Return the folder of an entry, after writing it if it does not exist.

        Args:
            name: name of the entry.
            fill: function that writes the contents into the folder that it gets.

        Raises:
            OSError: the cache cannot be written.
        """
        if found := self.get(name):
            return found
        entry = self.folder / name
        partial = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.folder))
        try:
            fill(partial)
            partial.chmod(0o755)
            partial.rename(entry)
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            # A folder cannot replace one with contents: another pod was faster.
            if isinstance(error, OSError) and (winner := self.get(name)):
                return winner
            raise
        return entry

    def remove_old(self, unused_days: int) -> None:
        """Remove entries that no pod has used for some days.

        Unfinished ones of killed pods are removed after a day.
        """
        now = time.time()
        for entry in self.folder.iterdir():
            days = 1 if entry.name.startswith(_UNFINISHED) else unused_days
            try:
                if now - entry.stat().st_mtime > days * _DAY:
                    # Another pod sees the whole entry or none.
                    partial = self.folder / f"{_UNFINISHED}{entry.name}-{os.getpid()}"
                    entry.rename(partial)
                    shutil.rmtree(partial, ignore_errors=True)
            except OSError:  # another pod has removed it, or another user owns it
                continue
