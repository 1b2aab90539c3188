"""Lines on standard output, whole and flushed: KFP publishes and streams them as they come."""

from __future__ import annotations

import contextlib
import sys
import threading

_lock = threading.Lock()


def print_line(text: str) -> None:
    """One line to standard output in one piece; a reader that is gone does not disturb the waiting."""
    with _lock, contextlib.suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
