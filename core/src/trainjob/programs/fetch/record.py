"""What lies in a folder that was fetched, and from where: `.trainjob-fetch/record.jsonl` in it.

The first line says where from, then comes one line for each file once it lies there, checked, and the last line only
when the folder is whole. So a fetch that is killed anywhere leaves a record of what needs no fetching again, and half a
folder is never taken for a whole one.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainjob.errors import FetchError
from trainjob.programs.fetch.folder import Folder, sync

__all__ = ["NOTES", "RECORD", "Journal", "Kept", "Record", "read_record"]

NOTES = ".trainjob-fetch"
"""The folder of the fetch's own files; no fetched file may be in it."""
RECORD = f"{NOTES}/record.jsonl"
_NEW_RECORD = f"{NOTES}/record.new"
_FORMAT = "trainjob-fetch"


@dataclass(frozen=True)
class Kept:
    """A file that lies in the folder; see [trainjob.programs.fetch.listing.StoreFile][]."""

    path: str
    size: int
    mark: str
    sha256: str


@dataclass(frozen=True)
class Record:
    """What is known of a folder.

    Attributes:
        uri, revision: where it came from; empty when nothing is known.
        files: what lies there, by path; the paths are not checked yet.
        whole: everything that was wanted lies there.
    """

    uri: str = ""
    revision: str = ""
    files: Mapping[str, Kept] = field(default_factory=dict)
    whole: bool = False


def read_record(folder: Path) -> Record:
    """Reads a folder's record; an empty one where there is none, or one that is not ours."""
    try:
        with Folder(folder).read(RECORD) as file:
            lines = file.read().decode().splitlines()
        head = json.loads(lines[0])
        if head["format"] != _FORMAT:
            return Record()
        entries = [entry for line in lines[1:] if (entry := _entry(line))]
        kept = [Kept(**entry) for entry in entries if entry != {"whole": True}]
        if not all(isinstance(one.path, str) for one in kept):
            return Record()
        files = {one.path: one for one in kept}
        return Record(str(head["uri"]), str(head["revision"]), files, entries[-1:] == [{"whole": True}])
    except (FetchError, OSError, ValueError, LookupError, TypeError, RecursionError):
        return Record()


def _entry(line: str) -> dict[str, Any] | None:
    """None for a line that was cut short by a kill."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class Journal:
    """Writes a folder's record while it is being filled; from any thread.

    Args:
        folder: which.
        uri: where it comes from.
        revision: the commit; may be empty.
        kept: what lies there already.
    """

    def __init__(self, folder: Path, uri: str, revision: str, kept: Iterable[Kept]) -> None:
        self._folder, self._lock = Folder(folder), threading.Lock()
        head = {"format": _FORMAT, "version": 1, "uri": uri, "revision": revision}
        lines = [head, *(asdict(one) for one in kept)]
        self._folder.remove(_NEW_RECORD)
        with self._folder.append(_NEW_RECORD) as file:
            file.write(b"".join(map(_line, lines)))
            sync(file)
        self._folder.move(_NEW_RECORD, RECORD)

    def add(self, kept: Kept) -> None:
        """A file lies there, on disk and checked."""
        with self._lock, self._folder.append(RECORD) as file:
            file.write(_line(asdict(kept)))

    def finish(self) -> None:
        """The folder is whole."""
        with self._lock, self._folder.append(RECORD) as file:
            file.write(_line({"whole": True}))
            sync(file)


def _line(entry: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(entry)}\n".encode()
