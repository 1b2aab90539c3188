"""Output of whole lines to standard output, flushed because KFP streams them."""

from __future__ import annotations

import contextlib
import sys
import threading

_lock = threading.Lock()


def print_line(text: str) -> None:
    """Write one line to standard output in one piece, and flush it.

    If standard output has no reader any more, the error is ignored, so that it does not end the wait.
    """
    with _lock, contextlib.suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
