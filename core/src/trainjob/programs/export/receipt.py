"""The result of an export."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Receipt"]


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
