"""Process of the program that copies checkpoints, as the training's process of rank 0 uses it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from trainjob.errors import FetchError

__all__ = ["FETCH", "REMOVE", "UPLOAD", "CopierProcess"]

FETCH, UPLOAD, REMOVE = "fetch", "upload", "remove"
"""Names of the requests. The first two have a path: a folder for the checkpoint, or the checkpoint."""

_ENDED = "the process that copies has ended"
_REMOVAL_SECONDS = 600  # after the training; a store that does not answer must not keep its pod longer


class CopierProcess:
    """Copies of the checkpoints of one training in a store.

    The process has a session of its own, so that no signal for the training ends it. It ends after this process.

    Attributes:
        uri: address of the copies.
    """

    def __init__(self, program: Sequence[str], uri: str, owner: str) -> None:
        """Start the process.

        Args:
            program: arguments of Python that run [trainjob.frameworks.checkpoint_copies][], with its options.
            uri: address of the copies.
            owner: digest of the training, the name of its folder below the address.
        """
        self.uri = uri
        self._process = subprocess.Popen(
            [sys.executable, *program, uri, owner],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def fetch(self, folder: Path) -> str:
        """Fetch the newest copy into a folder, and return the checkpoint's name.

        It is empty if no copy is known.

        Raises:
            FetchError: there is a copy, and it cannot be fetched.
        """
        self._send(FETCH, str(folder))
        line = self._process.stdout.readline() if self._process.stdout else ""
        answer: dict[str, str] = json.loads(line) if line else {"warning": _ENDED}
        if reason := answer.get("error"):
            hint = "run the step again when the store can be read, or remove the copy to start from the beginning"
            raise FetchError(reason, hint=hint)
        if reason := answer.get("warning"):
            print(f"warning: the copies of checkpoints in {self.uri} cannot be read: {reason}", flush=True)
        return answer.get("checkpoint", "")

    def upload(self, checkpoint: Path) -> None:
        """Copy a complete checkpoint while the training continues.

        The upload of an earlier one that has begun is completed first.
        """
        if not self._send(UPLOAD, str(checkpoint)):
            print(f"warning: {checkpoint.name} is not copied to {self.uri}: {_ENDED}", flush=True)

    def finish(self) -> None:
        """Wait until the last checkpoint is copied, or the store has refused it."""
        self._end()

    def finish_training(self, *, keep: bool) -> None:
        """Remove the copies of a complete training, or wait until the last checkpoint is copied.

        Args:
            keep: whether the copies stay.
        """
        if keep:
            self._end()
            return
        self._send(REMOVE)
        try:
            self._end(_REMOVAL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            reason = f"the store did not do it within {_REMOVAL_SECONDS} s"
            print(f"warning: the copies of checkpoints in {self.uri} are not removed: {reason}", flush=True)

    def discard_earlier(self) -> None:
        """Remove the copies of an earlier, complete training before the same work is done again."""
        self._send(REMOVE)

    def _send(self, *request: str) -> bool:
        """Return whether the process got a request."""
        try:
            if self._process.stdin:
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
        except OSError:
            return False
        return True

    def _end(self, seconds: float | None = None) -> None:
        """Let the process end after its last request, and wait for it."""
        self._send()  # a process that loads data may have inherited the pipe, and keep it open
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe:
                    pipe.close()
        self._process.wait(seconds)
