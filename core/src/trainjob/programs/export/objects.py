"""Exports into an object store.

An object store cannot rename, so `manifest.json` marks an export as complete. It exists only while every object that it
names exists with the named content. An export that changes something

1. writes `manifest.pending.json` with the names of all objects below the prefix that are or may become its own,
2. deletes the manifest of the export that it replaces,
3. writes the objects that are not there yet with the same size and SHA-256 (stored as user metadata),
4. deletes the objects of earlier exports, finished or not, that this one does not have,
5. writes the manifest, and deletes the pending manifest of step 1.

Every step may be repeated, so an export that is killed at any point is completed by running it again. Other objects
below the same prefix are never changed. A reader reads the manifest first. If an export replaces it while the reader
reads on, the reader notices by the SHA-256 of the content that it read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from trainjob.errors import ExportError, TrainJobError
from trainjob.programs.export.hashed_file import HashedFile, hash_files
from trainjob.programs.export.layout import MANIFEST, PENDING_MANIFEST, ExportFile
from trainjob.programs.export.manifest_file import FORMAT, BuildContent, ExportContent, parse_manifest_files
from trainjob.programs.fetch.bucket import Bucket, extract_message
from trainjob.programs.fetch.connections import find_connection_advice
from trainjob.programs.fetch.progress import TransferProgress

__all__ = ["ObjectTarget"]

_WORKERS = 4
_PARTS_AT_ONCE = 2  # of one object; with the workers and the part size this bounds memory to about 128 MiB
_PART = 16 << 20  # bytes
_MAX_PARTS = 9_000  # S3 and Google Cloud Storage allow 10 000 in one object
_SHA256 = "sha256"


@dataclass(frozen=True)
class ObjectTarget:
    """A prefix in a bucket.

    Attributes:
        bucket, prefix: location of the export.
    """

    bucket: Bucket
    prefix: str

    def send(
        self, files: Sequence[ExportFile], build: BuildContent, progress: TransferProgress
    ) -> tuple[ExportContent, str]:
        """Write the files below the prefix; return their content and an empty revision.

        Raises:
            ExportError: the store refuses, cannot be reached, or has a manifest that no export wrote; or a file cannot
                be exported.
        """
        content = build(hash_files(files, progress))
        try:
            _ObjectUpload(self.bucket.create_operator(f"/{self.prefix}"), content, progress).run()
        except TrainJobError:
            raise
        except Exception as failure:  # opendal's errors have no common base of their own
            raise self._to_error(failure) from failure
        return content, ""

    def _to_error(self, failure: Exception) -> ExportError:
        address, text = f"{self.bucket}/{self.prefix}", extract_message(str(failure))
        if known := self.bucket.describe_access_problem(failure, permissions="read, write and delete"):
            return ExportError(f"{address}: {known[0]}", hint=known[1])
        if type(failure).__name__ == "ConfigInvalid":
            return ExportError(f"{address}: {text}", hint="check the destination, the endpoint and the region")
        default = "check the endpoint and the region; the export may be repeated at any time"
        return ExportError(f"{address}: {text}", hint=find_connection_advice(str(failure), default))


class _ObjectUpload:
    """A running export to an object store."""

    def __init__(self, store: Any, content: ExportContent, progress: TransferProgress) -> None:
        self._store, self._content, self._progress = store, content, progress

    def run(self) -> None:
        manifest, pending = self._read(MANIFEST), self._read(PENDING_MANIFEST)
        named = [parse_manifest_files(content) for content in (manifest, pending) if content is not None]
        names = {file.path for file in self._content.files}
        earlier: set[str] = set().union(*named)
        with ThreadPoolExecutor(_WORKERS) as workers:
            missing = [file for file in workers.map(self._find_missing, self._content.files) if file]
            if missing or earlier - names:
                self._write_pending_manifest(earlier | names)
                self._store.delete(MANIFEST)
                manifest = None
            self._report_existing(missing)
            with self._progress.report_periodically():
                for _ in workers.map(self._upload_and_report, missing):
                    pass
            for _ in workers.map(self._store.delete, earlier - names):
                pass
        self._finish(manifest)

    def _read(self, path: str) -> bytes | None:
        # Check the existence first, because a read of a missing object would be retried.
        return bytes(self._store.read(path)) if self._store.exists(path) else None

    def _find_missing(self, file: HashedFile) -> HashedFile | None:
        if not self._store.exists(file.path):
            return file
        found = self._store.stat(file.path)
        same = found.content_length == file.size and (found.user_metadata or {}).get(_SHA256) == file.sha256
        return None if same else file

    def _write_pending_manifest(self, names: Iterable[str]) -> None:
        self._store.write(PENDING_MANIFEST, json.dumps({"format": FORMAT, "files": sorted(names)}).encode())

    def _report_existing(self, missing: list[HashedFile]) -> None:
        sending = {file.path for file in missing}
        for file in self._content.files:
            if file.path not in sending:
                self._progress.report_file(file.path, file.size, moved=False)

    def _upload_and_report(self, file: HashedFile) -> None:
        self._put(file)
        self._progress.report_file(file.path, file.size)

    def _put(self, file: HashedFile) -> None:
        part = max(_PART, math.ceil(file.size / _MAX_PARTS))
        writer = self._store.open(
            file.path, "wb", chunk=part, concurrent=_PARTS_AT_ONCE, user_metadata={_SHA256: file.sha256}
        )
        for block in file.blocks(part):
            writer.write(block)
            self._progress.add_bytes(len(block))
        writer.close()  # creates the object; it is not closed if the file has changed

    def _finish(self, manifest: bytes | None) -> None:
        new = self._content.manifest
        changed = manifest != new.file.content
        if changed:
            self._put(new)
        self._progress.report_file(new.path, new.size, moved=changed)
        self._store.delete(PENDING_MANIFEST)
