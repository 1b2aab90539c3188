"""Fetches from a prefix of an object store.

Every object is stored under the rest of its key, as by the Trainer's program (Trainer 2.3
`pkg/initializers/utils/opendal.py`). A key that only starts with the prefix (`a/bc` for `a/b`) does not count. An
object that our export wrote carries its SHA-256. An ETag is an MD5 for some objects and not for others (Amazon S3 API
Reference, 2006-03-01, Object). It is therefore only used to distinguish one content from another.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from http.client import HTTPResponse
from pathlib import PurePosixPath
from typing import Any

from trainjob.errors import FetchError
from trainjob.programs.fetch.bucket import Bucket, extract_message
from trainjob.programs.fetch.connections import find_connection_advice
from trainjob.programs.fetch.http_reader import HttpReader, Location, Locations
from trainjob.programs.fetch.listing import Listing, StoreFile
from trainjob.programs.fetch.row_format import HEAD_BYTES, find_extension
from trainjob.programs.fetch.transfer import CONNECTIONS, ReaderFactory

__all__ = ["ObjectSource"]

_SIGNED_SECONDS = 3600  # an address is signed again when the store says that it has expired
_SHA256 = "sha256"  # the user metadata of trainjob.programs.export.objects


@dataclass(frozen=True)
class ObjectSource:
    """A prefix in a bucket, or one object.

    Attributes:
        bucket, prefix: location of the objects.
    """

    bucket: Bucket
    prefix: str
    connections = CONNECTIONS

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

    def create_readers(self, revision: str) -> ReaderFactory:  # noqa: ARG002 - objects have none
        """Return the factory of readers.

        opendal signs the addresses of S3 objects, so that it finds all credentials as before, and HTTP reads them. For
        the other stores it can't sign with every kind of credentials, so it reads them itself.
        """
        if self.bucket.scheme == "s3":
            return functools.partial(HttpReader, Locations(self._locate, self._note_digest))
        return functools.partial(_OperatorReader, self._store, self._match_options)

    def add_digest(self, file: StoreFile, *, has_arrived: bool) -> StoreFile:  # noqa: ARG002
        """Return the file with the digest from its object's metadata, if there is one."""
        if file.key not in self._digests:
            metadata = self._store.stat(file.key).user_metadata or {}
            self._digests[file.key] = metadata.get(_SHA256, "")
        return replace(file, sha256=self._digests[file.key])

    def to_error(self, failure: Exception) -> FetchError:
        """Return the error for a failure of opendal: one sentence, and a hint."""
        kind, text = type(failure).__name__, extract_message(str(failure))
        if known := self.bucket.describe_access_problem(failure, permissions="list and read"):
            return FetchError(f"{self}: {known[0]}", hint=known[1])
        if kind == "ConditionNotMatch" or getattr(failure, "status", 0) == 412:
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

    def _locate(self, file: StoreFile) -> Location:
        signed = self._signer.sign(file.key, _SIGNED_SECONDS)
        condition = {"If-Match": file.mark} if self._match_options(file) else {}
        return Location(signed.url, {**signed.headers, **condition})

    def _note_digest(self, file: StoreFile, response: HTTPResponse) -> None:
        """Keep the digest in an object's metadata, which each response contains."""
        self._digests[file.key] = response.headers.get(f"x-amz-meta-{_SHA256}", "")

    def _match_options(self, file: StoreFile) -> dict[str, str]:
        # Some S3-compatible stores list ETags without quotes, and do not recognize them in that form. Google's ETags
        # have no quotes.
        is_etag = file.mark.startswith('"') or self.bucket.scheme == "gs"
        return {"if_match": file.mark} if is_etag else {}

    @functools.cached_property
    def _store(self) -> Any:
        return self.bucket.adapt().create_operator()

    @functools.cached_property
    def _signer(self) -> _Signer:
        return _Signer(self._store.to_async_operator())

    @functools.cached_property
    def _digests(self) -> dict[str, str]:
        return {}


class _Signer:
    """Signer of the addresses of objects, for use from any thread."""

    def __init__(self, store: Any) -> None:
        self._store, self._lock = store, threading.Lock()
        self._loop = asyncio.new_event_loop()  # opendal 0.47 signs with its asynchronous operator only

    def sign(self, key: str, seconds: int) -> Any:
        """Return the URL and the headers of a GET of an object, valid for some seconds."""

        async def sign() -> Any:
            return await self._store.presign_read(key, seconds)

        with self._lock:
            return self._loop.run_until_complete(sign())


class _OperatorReader:
    """A reader of parts of objects with opendal; it has its own connections.

    Args:
        store: opendal's operator.
        get_options: function that returns the options of a read of a file.
        is_sequential: not used, because all stores support ranges.
    """

    def __init__(
        self,
        store: Any,
        get_options: Callable[[StoreFile], Mapping[str, str]],
        *,
        is_sequential: bool,  # noqa: ARG002
    ) -> None:
        self._store, self._get_options = store, get_options

    def read_into(self, file: StoreFile, offset: int, buffer: memoryview) -> int:
        """Fill the buffer with the bytes of an object from an offset on, and return their number.

        If the content of the key changes in the middle of the fetch, the store returns an error (`if_match`).
        """
        content = self._store.read(file.key, offset=offset, size=len(buffer), **self._get_options(file))
        if not content:
            raise ConnectionError(f"the store sent no bytes of {file.key}")
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        """Do nothing, because the operator is shared."""

    def abort(self) -> None:
        """Do nothing, because opendal can't end a read."""


def _is_folder(key: str, entry: Any, folders: Container[str]) -> bool:
    """Return whether an entry is the mark of a folder.

    Azure's hierarchical namespaces and Hadoop have such a mark also as an empty object without `/` at its end.
    """
    return entry.metadata.is_dir or (not entry.metadata.content_length and key in folders)
