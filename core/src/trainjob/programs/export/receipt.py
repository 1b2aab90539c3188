"""The progress that an export prints while it runs, and its result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from trainjob.programs.fetch.progress import format_size

__all__ = ["ExportProgress", "Receipt"]


@dataclass(frozen=True)
class Receipt:
    """The result of an export.

    Attributes:
        destination: the destination's address, as given.
        kind: `model` or `adapter`.
        epoch, step: position of the checkpoint in the training, see [trainjob.programs.export.checkpoint.Checkpoint][].
        files, bytes: number and total size in bytes of the files, without the manifest.
        sent: number of files that had to be sent; the destination already had the others with the same content.
        manifest_sha256: digest of `manifest.json`; the same for two exports of the same content.
        revision: the commit on the Hugging Face hub; empty elsewhere.
        metrics: the training's last metrics, as in the manifest.
        registered: names and IDs in the model registry; empty without a registry.
    """

    destination: str
    kind: str
    epoch: float
    files: int
    bytes: int
    sent: int
    manifest_sha256: str
    revision: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)
    registered: dict[str, str] = field(default_factory=dict)
    step: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict of JSON values, without a `step` that is None."""
        return {name: value for name, value in asdict(self).items() if name != "step" or value is not None}


class ExportProgress:
    """Progress lines of an export, one for each exported file.

    A line reads `export: 3/7 model.safetensors 12.3 MB`. All methods may be called from any thread.

    Args:
        total: number of files, including the manifest.
        report: function that takes each line.
    """

    def __init__(self, total: int, report: Callable[[str], None]) -> None:
        self._total, self._report = total, report
        self._done = self._sent = 0
        self._lock = threading.Lock()

    @property
    def sent(self) -> int:
        """Number of files that were sent."""
        return self._sent

    def report_file(self, path: str, size: int, *, sent: bool = True) -> None:
        """Count a file and print its line; `sent` is False if the destination already had it."""
        with self._lock:
            self._done += 1
            self._sent += sent
            self._report(
                f"export: {self._done}/{self._total} {path} {format_size(size)}{'' if sent else ' (already there)'}"
            )
