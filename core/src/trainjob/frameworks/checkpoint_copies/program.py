"""Program beside a training that copies its checkpoints, so that a slow or failing store never delays a step.

It reads requests on standard input, answers those that the training waits for on standard output, and writes to the
log on standard error. It ends after the last request when standard input ends, which also happens if the training is
killed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trainjob.addresses import parse_destination
from trainjob.credentials import redact_credentials
from trainjob.errors import TrainJobError
from trainjob.frameworks.checkpoint_copies.copies import CheckpointCopies
from trainjob.frameworks.checkpoint_copies.requests import Requests
from trainjob.frameworks.copier_process import FETCH, UPLOAD
from trainjob.programs.fetch.bucket import Bucket, create_bucket, extract_message
from trainjob.programs.fetch.connections import find_connection_advice, use_certificates
from trainjob.programs.fetch.progress import format_size
from trainjob.programs.locked_library import import_library
from trainjob.version import check_version

__all__ = ["Copier", "main"]

_PERMISSIONS = "list, read, write and delete"
_LOCK = "frameworks.checkpoint_copies.lock"


class Copier:
    """Handler of the requests of one training."""

    def __init__(self, uri: str, owner: str, endpoint: str) -> None:
        """Create a handler, without any request to the store.

        Args:
            uri: address of the copies.
            owner: digest of the training, the name of its folder below the address.
            endpoint: URL of the store; empty means the usual one.
        """
        self._uri, self._owner, self._endpoint = uri.rstrip("/"), owner, endpoint
        self._bucket: Bucket | None = None
        self._copies: CheckpointCopies | None = None

    def upload(self, checkpoint: Path) -> str:
        """Copy a checkpoint, and return the line for the log; empty if the store has it already."""
        begin = time.monotonic()
        try:
            done = self._open().upload(checkpoint)
        except Exception as failure:  # noqa: BLE001 - of opendal, pip, or a file
            return f"warning: {checkpoint.name} is not copied to {self._uri}: {self._describe(failure)}"
        if done.reason:
            return f"warning: {checkpoint.name} is not copied to {self._uri}: {done.reason}"
        took = time.monotonic() - begin
        size = format_size(done.size)
        return f"copied {checkpoint.name} ({size}) to {self._uri} in {took:.0f} s" if done.size else ""

    def fetch(self, folder: Path) -> dict[str, str]:
        """Fetch the newest copy into a folder.

        Returns:
            `checkpoint`, the name of the fetched folder; or `warning`, why no copy is known; or `error`, why a copy
            that exists cannot be fetched. Empty if the store has none.
        """
        begin = time.monotonic()
        try:
            copies = self._open()
            step = copies.find_newest()
        except Exception as failure:  # noqa: BLE001 - of opendal, pip, or a file
            return {"warning": self._describe(failure)}
        if step is None:
            return {}
        try:
            found = copies.download(step, folder)
        except Exception as failure:  # noqa: BLE001 - of opendal, pip, or a file
            return {"error": f"checkpoint-{step} cannot be fetched from {self._uri}: {self._describe(failure)}"}
        size = format_size(sum(path.stat().st_size for path in found.rglob("*") if path.is_file()))
        _log(f"fetched {found.name} ({size}) from {self._uri} in {time.monotonic() - begin:.0f} s")
        return {"checkpoint": found.name}

    def remove_all(self) -> str:
        """Remove all copies, and return a warning for the log; empty if they are removed."""
        try:
            self._open().remove_all()
        except Exception as failure:  # noqa: BLE001 - of opendal, pip, or a file
            return f"warning: the copies of checkpoints in {self._uri} are not removed: {self._describe(failure)}"
        return ""

    def _open(self) -> CheckpointCopies:
        if self._copies is None:
            import_library("opendal", _LOCK)
            place = parse_destination(self._uri)
            self._bucket = create_bucket(place, os.environ, self._endpoint, "").adapt()
            root = "/".join(part for part in (place.path, self._owner) if part)
            self._copies = CheckpointCopies(self._bucket.create_operator(f"/{root}/"))
        return self._copies

    def _describe(self, failure: Exception) -> str:
        """Return the reason of a failure and the advice, without credentials."""
        if isinstance(failure, TrainJobError | RuntimeError | OSError) or self._bucket is None:
            return _to_line(str(failure))
        if known := self._bucket.describe_access_problem(failure, _PERMISSIONS):
            return _to_line("; ".join(known))
        advice = find_connection_advice(str(failure), "")
        reason = f"{type(failure).__name__}: {extract_message(str(failure))}"
        return _to_line(f"{reason}; {advice}" if advice else reason)


def main(words: Sequence[str] | None = None) -> int:
    """Handle the requests of a training until standard input ends."""
    parser = argparse.ArgumentParser(description="Copy checkpoints of a training to an object store.")
    parser.add_argument("uri", help="address of the copies")
    parser.add_argument("owner", help="digest of the training")
    parser.add_argument("--endpoint", default="", help="URL of the store if it is not AWS, Google or Azure")
    given = parser.parse_args(check_version(sys.argv[1:] if words is None else words))
    use_certificates()
    requests, copier = Requests(), Copier(given.uri, given.owner, given.endpoint)
    threading.Thread(target=requests.fill, args=(sys.stdin,), daemon=True).start()
    handlers: dict[str, Callable[[Path], str]] = {UPLOAD: copier.upload, FETCH: lambda path: _answer(copier, path)}
    is_nice = False
    while request := requests.take():
        for name in requests.skipped:
            _log(f"warning: {name} is not copied to {given.uri}: a newer checkpoint was saved meanwhile")
        requests.skipped.clear()
        name, *paths = request
        if name != FETCH and not is_nice:
            os.nice(10)  # the training comes first
            is_nice = True
        line = handlers[name](Path(paths[0])) if paths else copier.remove_all()
        if line:
            _log(line)
    return 0


def _answer(copier: Copier, folder: Path) -> str:
    print(json.dumps(copier.fetch(folder)), flush=True)
    return ""


def _to_line(text: str) -> str:
    return redact_credentials(" ".join(text.split()))


def _log(line: str) -> None:
    print(redact_credentials(line), file=sys.stderr, flush=True)
