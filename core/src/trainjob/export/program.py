"""The export from its arguments to its exit code.

Exit codes: 0 exported (or there already), 1 failed, with one sentence that says why, 2 wrong arguments.
Credentials come from the environment only, and are never printed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem, TrainJobError
from trainjob.export.checkpoint import Checkpoint, find_checkpoint
from trainjob.export.destinations import CREDENTIAL_NAMES, Access, Target, destination_of
from trainjob.export.folder import FolderTarget
from trainjob.export.layout import plan
from trainjob.export.manifest_file import bundle
from trainjob.export.receipt import Progress, Receipt, say, size_text
from trainjob.export.run_record import read_metrics

__all__ = ["Export", "export_model", "main"]

_SHORTEST_SECRET = 6  # characters; a shorter one would blacken words


@dataclass(frozen=True)
class Export:
    """What to export where.

    Attributes:
        output: folder that the TorchTune run wrote to.
        model: folder of the base model; it may be missing.
        destination: an address, see [trainjob.export.destinations][].
        access: how to reach it.
        facts: put into the manifest as they are: `base_model`, `dataset`, `run_key`, `parameters`, `created`, …
    """

    output: Path
    model: Path
    destination: str
    access: Access = field(default_factory=Access)
    facts: Mapping[str, Any] = field(default_factory=dict)


def export_model(request: Export, tell: Callable[[str], None] = say) -> Receipt:
    """Exports the final checkpoint of a run. Doing it again changes nothing; doing it after a crash completes it.

    Args:
        request: what and where.
        tell: takes the lines of progress; may be called from other threads.

    Raises:
        InvalidSpec: the destination is no address that is known.
        ExportError: there is no complete checkpoint, or it cannot be sent.
        OSError: a folder cannot be read or written.
    """
    target = destination_of(request.destination, request.access)
    checkpoint = find_checkpoint(request.output)
    _check_apart(target, request.model, checkpoint)
    files = plan(checkpoint, request.model, str(request.facts.get("base_model") or ""))
    sealed = bundle(files, checkpoint, read_metrics(request.output), request.facts)
    total = sum(file.size for file in sealed.files)
    tell(
        f"export: {checkpoint.kind} of {checkpoint.folder.name} ({checkpoint.dtype or 'mixed types'}), "
        f"{len(sealed.files)} files, {size_text(total)}, to {request.destination}"
    )
    progress = Progress(len(sealed.everything), tell)
    revision = target.send(sealed, progress)
    return Receipt(
        destination=request.destination,
        kind=checkpoint.kind,
        epoch=checkpoint.epoch,
        files=len(sealed.files),
        bytes=total,
        sent=progress.sent,
        manifest_sha256=sealed.manifest.sha256,
        revision=revision,
    )


def _check_apart(target: Target, model: Path, checkpoint: Checkpoint) -> None:
    if isinstance(target, FolderTarget):
        for folder in (model, checkpoint.folder):
            if target.overlaps(folder):
                raise InvalidSpec(Problem("destination", str(target.path), f"name a folder apart from {folder}"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the export as a program and returns its exit code; the last line is `export: done {json}`."""
    given = (os.environ.get(name, "") for name in CREDENTIAL_NAMES)
    secrets = [value for value in given if len(value) >= _SHORTEST_SECRET]
    try:
        receipt = export_model(_read(arguments))
    except InvalidSpec as refusal:
        return _fail(2, str(refusal), secrets)
    except (TrainJobError, OSError) as failure:
        return _fail(1, str(failure), secrets)
    say(f"export: done {json.dumps(receipt.to_dict())}")
    return 0


def _read(arguments: Sequence[str] | None) -> Export:
    parser = argparse.ArgumentParser(
        prog="python -m trainjob.export", description="Export a TorchTune run's final checkpoint."
    )
    parser.add_argument("--output", type=Path, default=Path("/workspace/output"), help="folder that the run wrote to")
    parser.add_argument("--model", type=Path, default=Path("/workspace/model"), help="folder of the base model")
    parser.add_argument(
        "--destination", required=True, help="/folder, s3://bucket/prefix or hf://org/name[@revision][/folder]"
    )
    parser.add_argument("--endpoint", default="", help="of the object store or hub")
    parser.add_argument("--region", default="", help="of the object store")
    parser.add_argument("--manifest", default="{}", help="JSON object put into manifest.json")
    given = parser.parse_args(arguments)
    access = Access(given.endpoint, given.region, dict(os.environ))
    return Export(given.output, given.model, given.destination, access, _facts(given.manifest))


def _facts(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidSpec(Problem("manifest", repr(text[:60]), "give a JSON object"))
    return found


def _fail(code: int, message: str, secrets: Sequence[str]) -> int:
    for secret in secrets:
        message = message.replace(secret, "***")
    print(f"export: failed: {message}", file=sys.stderr, flush=True)
    return code
