"""What lies in a folder that was fetched, and from where: `.trainjob-fetch/record.jsonl` in it.

The first line says where from, then comes one line for each file once it lies there, checked, and the last line only
when the folder is whole. So a fetch that is killed anywhere leaves a record of what needs no fetching again, and half a
folder is never taken for a whole one.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

__all__ = ["NOTES", "Journal", "Kept", "Record", "read_record"]

NOTES = ".trainjob-fetch"
_RECORD = "record.jsonl"
_FORMAT = "trainjob-fetch"


@dataclass(frozen=True)
class Kept:
    """A file that lies in the folder; see [trainjob.fetch.listing.StoreFile][]."""

    path: str
    size: int
    mark: str
    sha256: str


@dataclass(frozen=True)
class Record:
    """What is known of a folder.

    Attributes:
        uri, revision: where it came from; empty when nothing is known.
        files: what lies there, by path.
        whole: everything that was wanted lies there.
    """

    uri: str = ""
    revision: str = ""
    files: Mapping[str, Kept] = field(default_factory=dict)
    whole: bool = False


def read_record(folder: Path) -> Record:
    """Reads a folder's record; an empty one where there is none, or one that is not ours."""
    try:
        lines = (folder / NOTES / _RECORD).read_text("utf-8").splitlines()
        head = json.loads(lines[0])
        if head["format"] != _FORMAT:
            return Record()
        entries = [entry for line in lines[1:] if (entry := _entry(line))]
        kept = [Kept(**entry) for entry in entries if entry != {"whole": True}]
        files = {one.path: one for one in kept if _stays_below(one.path)}
        return Record(str(head["uri"]), str(head["revision"]), files, entries[-1:] == [{"whole": True}])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return Record()


def _entry(line: str) -> dict[str, Any] | None:
    """None for a line that was cut short by a kill."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _stays_below(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


class Journal:
    """Writes a folder's record while it is being filled; from any thread.

    Args:
        folder: which.
        uri: where it comes from.
        revision: the commit; may be empty.
        kept: what lies there already.
    """

    def __init__(self, folder: Path, uri: str, revision: str, kept: Iterable[Kept]) -> None:
        self._path, self._lock = folder / NOTES / _RECORD, threading.Lock()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        head = {"format": _FORMAT, "version": 1, "uri": uri, "revision": revision}
        lines = [head, *(asdict(one) for one in kept)]
        fresh = self._path.with_suffix(".new")
        fresh.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
        to_disk(fresh)
        fresh.replace(self._path)

    def add(self, kept: Kept) -> None:
        """A file lies there, on disk and checked."""
        self._append(asdict(kept))

    def finish(self) -> None:
        """The folder is whole."""
        self._append({"whole": True})
        to_disk(self._path)

    def _append(self, entry: Mapping[str, Any]) -> None:
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(entry)}\n")


def to_disk(path: Path) -> None:
    """Waits until a file is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
