"""Fetches from a prefix of an object store.

Every object is stored under the rest of its key, as by the Trainer's program (Trainer 2.3
`pkg/initializers/utils/opendal.py`). A key that only starts with the prefix (`a/bc` for `a/b`) does not count. An
object that our export wrote carries its SHA-256. An ETag is an MD5 for some objects and not for others (Amazon S3 API
Reference, 2006-03-01, Object). It is therefore only used to distinguish one content from another.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, BinaryIO

from trainjob.errors import FetchError
from trainjob.programs.fetch.bucket import Bucket, extract_message
from trainjob.programs.fetch.connections import find_connection_advice
from trainjob.programs.fetch.listing import Listing, StoreFile
from trainjob.programs.fetch.row_format import HEAD_BYTES, find_extension

__all__ = ["ObjectSource"]

_BLOCK = 8 << 20
_SHA256 = "sha256"  # the user metadata of trainjob.programs.export.objects


@dataclass(frozen=True)
class ObjectSource:
    """A prefix in a bucket, or one object.

    Attributes:
        bucket, prefix: location of the objects.
    """

    bucket: Bucket
    prefix: str

    def list_files(self) -> Listing:
        """Return the objects below the prefix.

        A single object without an extension gets that of its format.
        """
        entries = {entry.path: entry for entry in self._store.list(self.prefix or "/", recursive=True)}
        folders = {str(folder) for key in entries for folder in PurePosixPath(key).parents}
        files = [
            self._store_file(key, entry)
            for key, entry in entries.items()
            if self._is_below_prefix(key) and not _is_folder(key, entry, folders)
        ]
        return Listing(tuple(sorted(self._add_extension(files), key=lambda file: file.path)))

    def download(self, file: StoreFile, target: BinaryIO, revision: str) -> None:  # noqa: ARG002 - objects have none
        """Append the bytes of an object that `target` does not have yet."""
        # If the content of the key changes in the middle of the download, the store returns an error (`if_match`).
        while (here := target.tell()) < file.size:
            wanted = min(_BLOCK, file.size - here)
            target.write(self._store.read(file.key, offset=here, size=wanted, **self._match_options(file)))

    def add_digest(self, file: StoreFile) -> StoreFile:
        """Return the file with the digest from its object's metadata, if there is one."""
        metadata = self._store.stat(file.key).user_metadata or {}
        return replace(file, sha256=metadata.get(_SHA256, ""))

    def to_error(self, failure: Exception) -> FetchError:
        """Return the error for a failure of opendal: one sentence, and a hint."""
        kind, text = type(failure).__name__, extract_message(str(failure))
        if known := self.bucket.describe_access_problem(failure, permissions="list and read"):
            return FetchError(f"{self}: {known[0]}", hint=known[1])
        if kind == "ConditionNotMatch":
            return FetchError(f"{self} changed while it was fetched", hint="the step may be repeated at any time")
        advice = find_connection_advice(str(failure), "the step may be repeated at any time")
        return FetchError(f"{self} can't be fetched: {kind}: {text}", hint=advice)

    def __str__(self) -> str:
        return f"{self.bucket}/{self.prefix}"

    def _is_below_prefix(self, key: str) -> bool:
        return not self.prefix or key == self.prefix or key.startswith(f"{self.prefix.rstrip('/')}/")

    def _store_file(self, key: str, entry: Any) -> StoreFile:
        path = key[len(self.prefix) :].lstrip("/") or PurePosixPath(key).name
        metadata = entry.metadata
        mark = str(metadata.etag or metadata.last_modified or "")
        return StoreFile(path, key, metadata.content_length, mark)

    def _add_extension(self, files: Sequence[StoreFile]) -> Sequence[StoreFile]:
        """Return the objects; the only one of a prefix has an extension in its path."""
        match files:
            case [StoreFile(key=self.prefix, path=path) as file] if file.size and not PurePosixPath(path).suffix:
                head = bytes(self._store.read(file.key, offset=0, size=min(file.size, HEAD_BYTES)))
                return [replace(file, path=f"{path}{find_extension(head)}")]
        return files

    def _match_options(self, file: StoreFile) -> dict[str, str]:
        # Some S3-compatible stores list ETags without quotes, and do not recognize them in that form. Google's ETags
        # have no quotes.
        is_etag = file.mark.startswith('"') or self.bucket.scheme == "gs"
        return {"if_match": file.mark} if is_etag else {}

    @functools.cached_property
    def _store(self) -> Any:
        return self.bucket.create_operator()


def _is_folder(key: str, entry: Any, folders: Container[str]) -> bool:
    """Return whether an entry is the mark of a folder.

    Azure's hierarchical namespaces and Hadoop have such a mark also as an empty object without `/` at its end.
    """
    return entry.metadata.is_dir or (not entry.metadata.content_length and key in folders)
