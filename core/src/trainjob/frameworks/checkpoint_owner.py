"""Owner of checkpoints: the training that may continue from them, for the programs that decide it in the pod.

The file `trainjob_training.json` in an output folder describes the training that last started there. Checkpoints of
another one are never continued and never overwritten: they are moved to `kept_checkpoints`, below a folder for each
training, and back when their own training starts again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from trainjob.frameworks.durable_files import read_object, write_text

__all__ = [
    "KEPT",
    "KEPT_CHECKPOINTS",
    "TRAINING_FILE",
    "CheckpointOwner",
    "find_owner",
    "find_reason",
    "get_kept_folder",
    "keep_newest",
]

TRAINING_FILE = "trainjob_training.json"
"""File in an output folder that describes the training which last started there."""
KEPT = 2
"""Number of checkpoints that are kept if a request does not say it, also of other trainings."""
KEPT_CHECKPOINTS = "kept_checkpoints"
"""Folder in an output folder with the checkpoints of other trainings."""

_DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class CheckpointOwner:
    """A training of one run of a workflow.

    Attributes:
        run: identifier of the workflow's run, the same in all attempts of a step.
        fields: what decides the weights: fields of the request by their paths, and a digest of each input's files.
        run_name: ID of the run in the workflow engine; empty if it is not known.
        resume_from: conditions for the checkpoint of another training from which this one starts; None for none.
    """

    run: str
    fields: Mapping[str, Any]
    run_name: str = ""
    resume_from: Mapping[str, Any] | None = None

    @property
    def digest(self) -> str:
        """32 hex digits that identify the training."""
        text = json.dumps({"run": self.run, "fields": dict(self.fields)}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def without(self, field: str) -> CheckpointOwner:
        """Return the owner for which a field does not count."""
        return replace(self, fields={name: value for name, value in self.fields.items() if name != field})

    def record(self, output: Path, parent: Mapping[str, Any] | None = None) -> None:
        """Describe this training, and the checkpoint from which it started, in the output folder.

        Raises:
            OSError: the folder cannot be written.
        """
        output.mkdir(parents=True, exist_ok=True)
        record = {"owner": self.digest, "run": self.run, "run_name": self.run_name, "fields": dict(self.fields)}
        record |= {"parent": dict(parent)} if parent else {}
        write_text(output / TRAINING_FILE, json.dumps(record, indent=2, sort_keys=True) + "\n")


def find_owner(text: str, files: Mapping[str, str] | None = None) -> CheckpointOwner:
    """Return the owner that a request describes.

    Args:
        text: JSON object with `run` and `fields`, which the request has for all its attempts.
        files: digest of each input's files, as [trainjob.frameworks.input_identity][] returns them.

    Raises:
        ValueError: the text is not such an object.
    """
    given = json.loads(text)
    fields = {**given["fields"], **(files or {})}
    return CheckpointOwner(given["run"], fields, given.get("run_name", ""), given.get("resume_from"))


def find_reason(output: Path, owner: CheckpointOwner) -> str:
    """Return why a training is not the one that last started in an output folder.

    The result is empty if it is the same training, or none has started there.
    """
    earlier = read_object(output / TRAINING_FILE)
    if not earlier or earlier.get("owner") == owner.digest:
        return ""
    if not owner.run:
        return "resuming is off"
    if earlier.get("run") != owner.run:
        return "it is another run of the workflow"
    before, now = earlier.get("fields"), owner.fields
    before = before if isinstance(before, dict) else {}
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            shown = ("not given" if value is None else json.dumps(value) for value in (before.get(name), now.get(name)))
            return f"{name} has changed" if name.startswith("files of") else f"{name} was {' and is '.join(shown)}"
    return "its description has changed"


def get_kept_folder(output: Path, digest: object) -> Path:
    """Return the folder with a training's checkpoints while another uses the output folder.

    Args:
        output: the output folder.
        digest: digest of the owner, as a mark has it; any other value means the folder `unknown`.
    """
    is_digest = isinstance(digest, str) and _DIGEST.fullmatch(digest)
    return output / KEPT_CHECKPOINTS / (str(digest) if is_digest else "unknown")


def keep_newest(checkpoints: Sequence[Path], root: Path, limit: int) -> str:
    """Remove all but the last checkpoints of other trainings, and then empty folders.

    Args:
        checkpoints: the checkpoints, oldest first.
        root: folder that contains a folder for each of the other trainings.
        limit: number of checkpoints that stay.

    Returns:
        Part of a sentence that lists those that stay; empty if there are none.
    """
    removed, kept = checkpoints[: max(0, len(checkpoints) - limit)], checkpoints[-limit:]
    for checkpoint in removed:
        print(f"removed {checkpoint}: at most {limit} checkpoints of other trainings are kept", flush=True)
        shutil.rmtree(checkpoint, ignore_errors=True)
    for folder in (*root.glob("*"), root):
        with contextlib.suppress(OSError):
            folder.rmdir()  # only an empty one
    names = ", ".join(str(checkpoint.relative_to(root)) for checkpoint in kept)
    return f"; {root} has the checkpoints of other trainings: {names}" if names else ""
