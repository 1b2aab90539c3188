"""What an export tells while it runs, and at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from trainjob.programs.fetch.telling import size_text

__all__ = ["Progress", "Receipt"]


@dataclass(frozen=True)
class Receipt:
    """What was exported.

    Attributes:
        destination: the destination's address, as it was given.
        kind: `model` or `adapter`.
        epoch: of the checkpoint, counted from 0.
        files, bytes: of the export, the manifest not counted.
        sent: how many files had to be sent; the others were there already, with the same content.
        manifest_sha256: of `manifest.json`; the same for two exports of the same thing.
        revision: the commit on the Hugging Face hub; empty elsewhere.
        metrics: the training's last ones, as in the manifest.
        registered: names and ids in the model registry; empty without one.
    """

    destination: str
    kind: str
    epoch: int
    files: int
    bytes: int
    sent: int
    manifest_sha256: str
    revision: str = ""
    metrics: dict[str, Any] = field(default_factory=dict)
    registered: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Its fields, as for JSON."""
        return asdict(self)


class Progress:
    """Prints a line for each file that has arrived: `export: 3/7 model.safetensors 12.3 MB`; from any thread.

    Args:
        total: how many files there are, the manifest counted.
        tell: takes the lines.
    """

    def __init__(self, total: int, tell: Callable[[str], None]) -> None:
        self._total, self._tell = total, tell
        self._done = self._sent = 0
        self._lock = threading.Lock()

    @property
    def sent(self) -> int:
        """How many files were sent."""
        return self._sent

    def arrived(self, path: str, size: int, *, sent: bool = True) -> None:
        """Counts a file, `sent` or there already."""
        with self._lock:
            self._done += 1
            self._sent += sent
            self._tell(
                f"export: {self._done}/{self._total} {path} {size_text(size)}{'' if sent else ' (already there)'}"
            )
