"""The record of a fetched folder: its files and their origin.

The record is the file `.trainjob-fetch/record.jsonl` in the folder. The first line contains the origin. One line for
each file follows after the file is on disk and verified. The last line is written only after the folder is complete. If
a fetch is killed, the record therefore lists the files that need not be fetched again. A partly filled folder never
counts as complete.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trainjob.errors import FetchError
from trainjob.programs.fetch.folder import Folder, sync_file

__all__ = ["RECORD_FILE", "RECORD_FOLDER", "Record", "RecordWriter", "RecordedFile", "read_record"]

RECORD_FOLDER = ".trainjob-fetch"
"""Folder of the fetch's own files; no fetched file may be in it."""
RECORD_FILE = f"{RECORD_FOLDER}/record.jsonl"
_NEW_RECORD = f"{RECORD_FOLDER}/record.new"
_FORMAT = "trainjob-fetch"


@dataclass(frozen=True)
class RecordedFile:
    """Entry of one file; [trainjob.programs.fetch.listing.StoreFile][] explains the fields."""

    path: str
    size: int
    mark: str
    sha256: str


@dataclass(frozen=True)
class Record:
    """The content of a folder's record.

    Attributes:
        uri, revision: origin of the files; empty if the folder has no valid record.
        files: the recorded files, by path; the paths are not checked yet.
        complete: whether the folder contains all requested files.
    """

    uri: str = ""
    revision: str = ""
    files: Mapping[str, RecordedFile] = field(default_factory=dict)
    complete: bool = False


def read_record(folder: Path) -> Record:
    """Return the record of a folder; an empty record if the file is missing or invalid."""
    try:
        with Folder(folder).open_for_reading(RECORD_FILE) as content:
            lines = content.read().decode().splitlines()
        head = json.loads(lines[0])
        if head["format"] != _FORMAT:
            return Record()
        entries = [entry for line in lines[1:] if (entry := _entry(line))]
        recorded = [RecordedFile(**entry) for entry in entries if entry != {"whole": True}]
        if not all(isinstance(file.path, str) for file in recorded):
            return Record()
        files = {file.path: file for file in recorded}
        return Record(str(head["uri"]), str(head["revision"]), files, entries[-1:] == [{"whole": True}])
    except (FetchError, OSError, ValueError, LookupError, TypeError, RecursionError):
        return Record()


def _entry(line: str) -> dict[str, Any] | None:
    """Return the entry in a line; None if a killed fetch left the line incomplete."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class RecordWriter:
    """Writer of a folder's record while the folder is filled, for any thread.

    The caller closes or finishes it.

    Args:
        folder: the folder to fill.
        uri: origin of the files.
        revision: the commit; may be empty.
        files: files that are in the folder already.
    """

    def __init__(self, folder: Path, uri: str, revision: str, files: Iterable[RecordedFile]) -> None:
        target, self._lock = Folder(folder), threading.Lock()
        head = {"format": _FORMAT, "version": 1, "uri": uri, "revision": revision}
        lines = [head, *(asdict(file) for file in files)]
        target.remove(_NEW_RECORD)
        self._file = target.open_for_appending(_NEW_RECORD)
        self._file.write(b"".join(map(_line, lines)))
        sync_file(self._file)
        target.move(_NEW_RECORD, RECORD_FILE)

    def add(self, entry: RecordedFile) -> None:
        """Record a file that is on disk and verified."""
        with self._lock:
            self._file.write(_line(asdict(entry)))
            self._file.flush()

    def close(self) -> None:
        """Close the record; the folder is not complete, unless `finish` was called."""
        self._file.close()

    def finish(self) -> None:
        """Record that the folder is complete, and close the record."""
        with self._lock, self._file:
            self._file.write(_line({"whole": True}))
            sync_file(self._file)


def _line(entry: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(entry)}\n".encode()
