"""`manifest.json`: content and origin of an export.

It is written last. If it exists, all files that it names exist, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from trainjob.errors import ExportError, InvalidSpec, Problem
from trainjob.programs.export.checkpoint import Checkpoint
from trainjob.programs.export.hashed_file import HashedFile, hash_content
from trainjob.programs.export.layout import MANIFEST, PENDING_MANIFEST, ExportFile
from trainjob.programs.fetch.names import check_names

__all__ = ["FORMAT", "BuildContent", "ExportContent", "build_content", "check_metadata", "parse_manifest_files"]

FORMAT = "trainjob-export"
_VERSION = 1
_OWN_KEYS = ("format", "version", "kind", "checkpoint", "metrics", "files", "totals")
_OTHER_DESTINATION = "name another destination, or remove this file"


@dataclass(frozen=True)
class ExportContent:
    """Everything that is sent: the files, and the manifest that names them all."""

    files: tuple[HashedFile, ...]
    manifest: HashedFile

    @property
    def all_files(self) -> tuple[HashedFile, ...]:
        """All files, the manifest last."""
        return (*self.files, self.manifest)


BuildContent = Callable[[Sequence[HashedFile]], ExportContent]
"""Function that returns files with their manifest, or raises a TrainJobError if they may not be exported."""


def build_content(
    files: Sequence[HashedFile], checkpoint: Checkpoint, metrics: Mapping[str, Any], metadata: Mapping[str, Any]
) -> ExportContent:
    """Return files with their manifest.

    Args:
        files: the files of [trainjob.programs.export.layout][], which were read.
        checkpoint: the checkpoint that the files come from.
        metrics: the run's metrics.
        metadata: the caller's values (base_model, dataset, run_key, parameters, …), put into the manifest unchanged;
            none of the manifest's own keys.
            Without `created`, the manifest's `created` is the time of the newest file. Exporting again then gives the
            same manifest.
    """
    manifest = {
        "format": FORMAT,
        "version": _VERSION,
        "kind": checkpoint.kind,
        "created": _newest_time(files),
        **metadata,
        "checkpoint": checkpoint.to_dict(),
        "metrics": dict(metrics),
        "files": {file.path: {"sha256": file.sha256, "size": file.size} for file in files},
        "totals": {"files": len(files), "bytes": sum(file.size for file in files)},
    }
    content = (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode()
    return ExportContent(tuple(files), hash_content(ExportFile(MANIFEST, content=content)))


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raise an InvalidSpec if metadata has one of the manifest's own keys."""
    taken = sorted(set(metadata) & set(_OWN_KEYS))
    if taken:
        raise InvalidSpec(
            Problem("manifest", ", ".join(taken), f"the keys {', '.join(_OWN_KEYS)} are reserved for the export")
        )


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


def _newest_time(files: Sequence[HashedFile]) -> str:
    newest = max((file.state[1] for file in files if file.state), default=0)
    return datetime.fromtimestamp(newest // 10**9, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
