"""Exports into an object store.

An object store cannot rename, so `manifest.json` marks an export as complete. It exists only while every object that it
names exists with the named content. An export that changes something

1. writes `manifest.pending.json` with the names of all objects below the prefix that are or may become its own,
2. deletes the manifest of the export that it replaces,
3. writes the objects that are not there yet with the same size and SHA-256 (stored as user metadata),
4. deletes the objects of earlier exports, finished or not, that this one does not have,
5. writes the manifest, and deletes the pending manifest of step 1.

Every step may be repeated, so an export that is killed at any point is completed by running it again. It then first
ends the multipart uploads of the killed one in S3, because they would cost money forever. Other objects
below the same prefix are never changed. A reader reads the manifest first. If an export replaces it while the reader
reads on, the reader notices by the SHA-256 of the content that it read.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainjob.errors import ExportError, TrainJobError
from trainjob.programs.export.hashed_file import FILES_AT_ONCE, HashedFile, hash_files, map_files
from trainjob.programs.export.layout import MANIFEST, PENDING_MANIFEST, ExportFile
from trainjob.programs.export.manifest_file import FORMAT, BuildContent, ExportContent, parse_manifest_files
from trainjob.programs.export.s3_requests import S3Requests, find_credentials
from trainjob.programs.export.unfinished_uploads import end_uploads
from trainjob.programs.fetch.bucket import Bucket, extract_message
from trainjob.programs.fetch.connections import find_connection_advice
from trainjob.programs.fetch.progress import TransferProgress
from trainjob.programs.fetch.retries import with_retries

__all__ = ["ObjectTarget"]

_PART = 8 << 20  # bytes
_BYTES_AT_ONCE = 64 << 20  # in parts of all objects; the process has about 170 MiB more
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
        upload = _ObjectUpload(self.bucket.adapt(), self.prefix, content, progress)
        try:
            upload.run()
        except Exception as failure:
            if upload.has_begun:
                upload.end_unfinished()
            if isinstance(failure, TrainJobError):
                raise
            raise self._to_error(failure) from failure  # opendal's errors have no common base of their own
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
    """A running export to an object store.

    Attributes:
        has_begun: whether an upload may have begun.
    """

    def __init__(self, bucket: Bucket, prefix: str, content: ExportContent, progress: TransferProgress) -> None:
        self._bucket, self._prefix, self._content, self._progress = bucket, prefix, content, progress
        self._store = bucket.create_operator(f"/{prefix}")
        self.has_begun, self._bytes_at_once = False, _BYTES_AT_ONCE  # of one object
        self._names = {file.path for file in content.files}  # of all objects that are or may become the export's

    def run(self) -> None:
        manifest, pending = self._read(MANIFEST), self._read(PENDING_MANIFEST)
        named = [parse_manifest_files(content) for content in (manifest, pending) if content is not None]
        names = {file.path for file in self._content.files}
        earlier: set[str] = set().union(*named)
        self._names |= earlier
        if pending is not None:
            self.end_unfinished()
        missing = [file for file in map_files(self._find_missing, self._content.files) if file]
        if missing or earlier - names:
            self._write_pending_manifest(self._names)
            self.has_begun = True
            self._store.delete(MANIFEST)
            manifest = None
        self._report_existing(missing)
        self._bytes_at_once = _BYTES_AT_ONCE // max(1, min(FILES_AT_ONCE, len(missing)))
        with self._progress.report_periodically():
            map_files(self._upload, missing)
        map_files(self._store.delete, earlier - names)
        if any(file.size > _PART for file in missing):
            self.end_unfinished(reports_failure=False)  # the response to the begin of an upload may have been lost
        self._finish(manifest)

    def end_unfinished(self, *, reports_failure: bool = True) -> None:
        """End the uploads to S3 that this export, or a killed one, has not finished."""
        if self._bucket.scheme != "s3":
            return
        try:
            if (credentials := find_credentials(self._bucket.options, os.environ)) is None:
                raise PermissionError("no credentials that can sign the requests")
            requests = S3Requests(self._bucket.name, self._bucket.options, credentials)
            ended = end_uploads(requests, {f"{self._prefix}/{name}".lstrip("/") for name in self._names})
        except (OSError, ValueError, LookupError) as failure:
            if reports_failure:
                self._progress.report(
                    f"unfinished uploads can't be ended ({failure}): the store keeps their parts until a lifecycle "
                    "rule (AbortIncompleteMultipartUpload) ends them"
                )
        else:
            if ended:
                self._progress.report(f"ended {ended} unfinished uploads")

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

    def _upload(self, file: HashedFile) -> None:
        """Write an object; repeat it after failures that opendal does not repeat itself."""

        def put() -> bool:
            self._put(file)
            return True

        with_retries(put, lambda: None if self._find_missing(file) else True)
        self._progress.report_file(file.path, file.size)

    def _put(self, file: HashedFile) -> None:
        part = max(_PART, math.ceil(file.size / _MAX_PARTS))
        parts_at_once = max(1, self._bytes_at_once // part)
        writer = self._store.open(
            file.path, "wb", chunk=part, concurrent=parts_at_once, user_metadata={_SHA256: file.sha256}
        )
        written = 0
        try:
            for block in file.blocks(part):
                writer.write(block)
                written += len(block)
                self._progress.add_bytes(len(block))
            writer.close()  # creates the object; it is not closed if the file has changed
        except BaseException:
            self._progress.add_bytes(-written)
            raise

    def _finish(self, manifest: bytes | None) -> None:
        new = self._content.manifest
        changed = manifest != new.file.content
        if changed:
            self._upload(new)
        else:
            self._progress.report_file(new.path, new.size, moved=False)
        self._store.delete(PENDING_MANIFEST)
