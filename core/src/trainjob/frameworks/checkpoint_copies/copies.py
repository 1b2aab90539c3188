"""Upload, download and removal of one training's checkpoints below a prefix of a bucket.

Every step may be repeated after a kill at any point.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trainjob.errors import FetchError
from trainjob.frameworks.durable_files import find_damage, read_object, sync_paths, write_text
from trainjob.programs.fetch.names import broken_rule

__all__ = ["CheckpointCopies", "Upload"]

_MARK = "trainjob_complete"
_CHECKPOINT = re.compile(r"checkpoint-([0-9]{1,12})/(.+)")
_BLOCK = 8 << 20  # bytes
_PIECE = 512 << 10  # what trainjob.programs.fetch.folder.PIECE_BYTES explains
_PART, _MAX_PARTS = 16 << 20, 9_000  # S3 and Google Cloud Storage allow 10 000 parts in one object


@dataclass(frozen=True)
class Upload:
    """Result of an upload.

    Attributes:
        size: bytes that were sent; 0 if the store has the checkpoint already.
        reason: why the checkpoint was not copied, such as its removal during the upload; empty if it was.
    """

    size: int = 0
    reason: str = ""


class CheckpointCopies:
    """The copies of one training."""

    def __init__(self, store: Any) -> None:
        """Create the object without any request.

        Args:
            store: opendal's operator; its root is the folder of the training's owner.
        """
        self._store = store

    def upload(self, checkpoint: Path) -> Upload:
        """Copy a complete checkpoint, and then remove the copies of earlier ones.

        The files are opened first, so that the training may remove the checkpoint while it is read.

        Raises:
            OSError: a file cannot be read.
            Exception: the store refuses or cannot be reached; the classes are opendal's.
        """
        local = read_object(checkpoint / _MARK)
        name, step = checkpoint.name, int(checkpoint.name.rpartition("-")[2])
        if not local:
            return Upload(reason="it is not complete, or was removed")
        if self._read_mark(step).get("checkpoint") == local:
            self._remove(before=step)  # an upload may have been killed before it did so
            return Upload()
        with contextlib.ExitStack() as opened:
            try:
                files = {each: opened.enter_context((checkpoint / each).open("rb")) for each in local["files"]}
            except FileNotFoundError:
                return Upload(reason="it was removed before it was read")
            before = {each: _get_state(file) for each, file in files.items()}
            if any(before[each][0] != size for each, size in local["files"].items()):
                return Upload(reason="a file has another size than when it was saved")
            self._store.delete(f"{name}/{_MARK}")
            digests = {each: self._send(f"{name}/{each}", file) for each, file in files.items()}
            if before != {each: _get_state(file) for each, file in files.items()}:
                return Upload(reason="it was written again while it was read")
        mark = {"checkpoint": local, "sha256": digests}
        self._store.write(f"{name}/{_MARK}", json.dumps(mark).encode())
        self._remove(before=step)
        return Upload(sum(local["files"].values()))

    def find_newest(self) -> int | None:
        """Return the step of the last complete copy; None if there is none.

        Raises:
            Exception: the store refuses or cannot be reached; the classes are opendal's.
        """
        return max((step for step, names in self._list().items() if _MARK in names), default=None)

    def download(self, step: int, folder: Path) -> Path:
        """Fetch a copy, and return the complete checkpoint below a folder.

        An incomplete one has another name and no mark.

        Raises:
            FetchError: the copy is damaged, or changes meanwhile.
            OSError: the folder cannot be written.
            Exception: the store refuses or cannot be reached; the classes are opendal's.
        """
        mark, target = self._read_mark(step), folder / f"checkpoint-{step}"
        part = target.with_name(f"{target.name}.new")
        for left in folder.glob("checkpoint-*.new"):  # of a download that was killed
            shutil.rmtree(left, ignore_errors=True)
        found, digests = mark.get("checkpoint"), mark.get("sha256")
        local = found if isinstance(found, dict) else {}
        files = local.get("files")
        if not isinstance(files, dict) or not isinstance(digests, dict) or files.keys() != digests.keys():
            raise FetchError(f"the copy of checkpoint-{step} has no valid mark")
        part.mkdir(parents=True)
        for name, sha256 in digests.items():
            if rule := broken_rule(name):
                raise FetchError(f"the copy of checkpoint-{step} lists a file of a wrong name: {rule}")
            if self._receive(f"{target.name}/{name}", part / name, int(files[name])) != sha256:
                raise FetchError(f"{name} of the copy of checkpoint-{step} has another content than was sent")
        if damage := find_damage(local, part):
            raise FetchError(f"the copy of checkpoint-{step} is damaged: {damage}")
        sync_paths([*part.rglob("*"), part])
        write_text(part / _MARK, json.dumps(local, indent=1))
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        sync_paths([folder])
        return target

    def remove_all(self) -> None:
        """Remove all copies of the training, each mark first.

        Raises:
            Exception: the store refuses or cannot be reached; the classes are opendal's.
        """
        self._remove()

    def _remove(self, before: int | None = None) -> None:
        for step, names in self._list().items():
            if before is None or step < before:
                for name in sorted(names, key=lambda each: each != _MARK):
                    self._store.delete(f"checkpoint-{step}/{name}")

    def _list(self) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for entry in self._store.list("/", recursive=True):
            if match := _CHECKPOINT.fullmatch(entry.path):
                found.setdefault(int(match[1]), set()).add(match[2])
        return found

    def _read_mark(self, step: int) -> dict[str, Any]:
        path = f"checkpoint-{step}/{_MARK}"
        # Check the existence first, because a read of a missing object would be retried.
        content = bytes(self._store.read(path)) if self._store.exists(path) else b"{}"
        try:
            mark = json.loads(content)
        except ValueError:
            return {}
        return mark if isinstance(mark, dict) else {}

    def _send(self, path: str, file: BinaryIO) -> str:
        digest, size = hashlib.sha256(), os.fstat(file.fileno()).st_size
        part = max(_PART, math.ceil(size / _MAX_PARTS))
        writer = self._store.open(path, "wb", chunk=part, concurrent=2)
        while block := file.read(part):
            digest.update(block)
            writer.write(block)
        writer.close()  # creates the object
        return digest.hexdigest()

    def _receive(self, path: str, target: Path, size: int) -> str:
        digest = hashlib.sha256()
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            while (offset := file.tell()) < size:
                block = memoryview(bytes(self._store.read(path, offset=offset, size=min(_BLOCK, size - offset))))
                digest.update(block)
                for begin in range(0, len(block), _PIECE):
                    file.write(block[begin : begin + _PIECE])
        return digest.hexdigest()


def _get_state(file: BinaryIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns
