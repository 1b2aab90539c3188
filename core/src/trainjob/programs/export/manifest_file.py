"""`manifest.json`: content and origin of an export.

It is written last. If it exists, all files that it names exist, too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from trainjob.errors import ExportError, InvalidSpec, Problem
from trainjob.programs.export.checkpoint import Checkpoint
from trainjob.programs.export.finite_check import FiniteCheck
from trainjob.programs.export.layout import MANIFEST, PENDING_MANIFEST, ExportFile
from trainjob.programs.fetch.names import check_names

__all__ = ["FORMAT", "ExportContent", "HashedFile", "build_content", "parse_manifest_files"]

FORMAT = "trainjob-export"
_VERSION = 1
_OWN_KEYS = ("format", "version", "kind", "checkpoint", "metrics", "files", "totals")
_HASHING_THREADS = 4
_BLOCK = 1 << 20
_OTHER_DESTINATION = "name another destination, or remove this file"


@dataclass(frozen=True)
class HashedFile:
    """A file of an export with its size in bytes and its SHA-256 in hex."""

    file: ExportFile
    size: int
    sha256: str

    @property
    def path(self) -> str:
        """Relative path of the file in the destination, with `/`."""
        return self.file.path

    def blocks(self, size: int = _BLOCK) -> Iterator[bytes]:
        """Yield the bytes in blocks of at most `size` bytes; check their SHA-256 at the end.

        Raises:
            ExportError: the file has changed since it was hashed; the caller must discard the blocks.
        """
        digest = hashlib.sha256()
        for block in self.file.blocks(size):
            digest.update(block)
            yield block
        self.check_unchanged(digest.hexdigest())

    def check_unchanged(self, sha256: str) -> None:
        """Raise an ExportError if the bytes that were sent have another SHA-256."""
        if sha256 != self.sha256:
            raise ExportError(
                f"{self.file.source or self.path} changed while it was exported",
                hint="let the fine-tune step end before the export",
            )


@dataclass(frozen=True)
class ExportContent:
    """Everything that is sent: the files, and the manifest that names them all."""

    files: tuple[HashedFile, ...]
    manifest: HashedFile

    @property
    def all_files(self) -> tuple[HashedFile, ...]:
        """All files, the manifest last."""
        return (*self.files, self.manifest)


def build_content(
    files: tuple[ExportFile, ...], checkpoint: Checkpoint, metrics: Mapping[str, Any], metadata: Mapping[str, Any]
) -> ExportContent:
    """Hash the files, check their weights, and return them with their manifest.

    Args:
        files: the plan of [trainjob.programs.export.layout][].
        checkpoint: the checkpoint that the files come from.
        metrics: the run's metrics.
        metadata: the caller's values (base_model, dataset, run_key, parameters, …), put into the manifest unchanged.
            Without `created`, the manifest's `created` is the time of the newest file. Exporting again then gives the
            same manifest.

    Raises:
        InvalidSpec: `metadata` has one of the manifest's own keys.
        ExportError: a weight is NaN or infinite.
    """
    taken = sorted(set(metadata) & set(_OWN_KEYS))
    if taken:
        raise InvalidSpec(
            Problem("manifest", ", ".join(taken), f"the keys {', '.join(_OWN_KEYS)} are reserved for the export")
        )
    with ThreadPoolExecutor(_HASHING_THREADS) as threads:
        hashed = tuple(threads.map(_hash_file, files))
    manifest = {
        "format": FORMAT,
        "version": _VERSION,
        "kind": checkpoint.kind,
        "created": _newest_time(files),
        **metadata,
        "checkpoint": checkpoint.to_dict(),
        "metrics": dict(metrics),
        "files": {file.path: {"sha256": file.sha256, "size": file.size} for file in hashed},
        "totals": {"files": len(hashed), "bytes": sum(file.size for file in hashed)},
    }
    content = (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode()
    return ExportContent(hashed, _hash_file(ExportFile(MANIFEST, content=content)))


def parse_manifest_files(content: bytes) -> frozenset[str]:
    """Return the file names of an earlier export, from its manifest or its pending manifest.

    Raises:
        ExportError: no export wrote it, or it names a file that no export writes. The caller must then replace nothing
            at the destination.
    """
    try:
        found = json.loads(content)
        is_export = found["format"] == FORMAT
        names = frozenset(str(name) for name in found["files"])
    except (ValueError, KeyError, TypeError, RecursionError):
        is_export, names = False, frozenset()
    if not is_export:
        raise ExportError(
            f"the destination has a {MANIFEST} that no export wrote, so nothing there is replaced",
            hint=_OTHER_DESTINATION,
        )
    check_names(
        names, f"the {MANIFEST} of the destination", ExportError, MANIFEST, PENDING_MANIFEST, hint=_OTHER_DESTINATION
    )
    return names


def _hash_file(file: ExportFile) -> HashedFile:
    digest, size = hashlib.sha256(), 0
    check = FiniteCheck(str(file.source or file.path)) if file.path.endswith(".safetensors") else None
    for block in file.blocks():
        digest.update(block)
        size += len(block)
        if check:
            check.update(block)
    return HashedFile(file, size, digest.hexdigest())


def _newest_time(files: tuple[ExportFile, ...]) -> str:
    newest = max((file.source.modified_at() for file in files if file.source), default=0.0)
    return datetime.fromtimestamp(int(newest), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
