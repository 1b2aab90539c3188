"""What a store has at an address, as every kind of store tells it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import BinaryIO

__all__ = ["Listing", "StoreFile", "digests"]

_BLOCK = 1 << 20


@dataclass(frozen=True)
class StoreFile:
    """One file in a store.

    Attributes:
        path: where it goes below the folder, relative, with `/`.
        key: its name in the store.
        size: in bytes.
        mark: what changes with its content: an ETag, or a git object's name.
        sha256: its digest in hex, where the store tells one.
        blob: its name as a git blob, where the store tells that.
    """

    path: str
    key: str
    size: int
    mark: str
    sha256: str = ""
    blob: str = ""

    @property
    def has_digest(self) -> bool:
        """Whether its content can be checked against the store's word."""
        return bool(self.sha256 or self.blob)


@dataclass(frozen=True)
class Listing:
    """The files that are wanted, in the order of their paths.

    Attributes:
        files: them.
        revision: the commit they are of; empty where a store has none.
    """

    files: tuple[StoreFile, ...]
    revision: str = ""


def digests(file: BinaryIO, size: int) -> tuple[str, str]:
    """Return the SHA-256 of an open file, and its name as a git blob of `size` bytes, in hex."""
    sha256, blob = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)  # noqa: S324 - what git uses
    while block := file.read(_BLOCK):
        sha256.update(block)
        blob.update(block)
    return sha256.hexdigest(), blob.hexdigest()
