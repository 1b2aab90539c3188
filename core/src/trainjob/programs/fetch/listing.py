"""The files of an address in a store, in the same form for every kind of store."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import BinaryIO

__all__ = ["Listing", "StoreFile", "compute_digests"]

_BLOCK = 1 << 20


@dataclass(frozen=True)
class StoreFile:
    """One file in a store.

    Attributes:
        path: relative path below the target folder, with `/`.
        key: the file's name in the store.
        size: size in bytes.
        mark: a text that changes with the content: an ETag, or the name of a git object.
        sha256: digest in hex, if the store has one.
        blob: name as a git blob, if the store has one.
    """

    path: str
    key: str
    size: int
    mark: str
    sha256: str = ""
    blob: str = ""

    @property
    def has_digest(self) -> bool:
        """Whether the store has a digest, by which the content can be checked."""
        return bool(self.sha256 or self.blob)


@dataclass(frozen=True)
class Listing:
    """The requested files, in the order of their paths.

    Attributes:
        files: the files.
        revision: the commit of the files; empty if the store has no commits.
    """

    files: tuple[StoreFile, ...]
    revision: str = ""


def compute_digests(file: BinaryIO, size: int) -> tuple[str, str]:
    """Return the SHA-256 of an open file, and its name as a git blob of `size` bytes, in hex."""
    sha256, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)  # noqa: S324 - what git uses
    while block := file.read(_BLOCK):
        sha256.update(block)
        blob.update(block)
    return sha256.hexdigest(), blob.hexdigest()
