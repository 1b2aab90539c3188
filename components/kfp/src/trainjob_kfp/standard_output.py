"""Output of whole lines to standard output, flushed because KFP streams them.

Control characters are shown as text, because `kubectl logs` writes a step's log to a terminal as it is.
"""

from __future__ import annotations

import contextlib
import sys
import threading

from trainjob.control_characters import escape_control_characters

_lock = threading.Lock()


def print_line(text: str) -> None:
    """Write one line to standard output in one piece, and flush it.

    If standard output has no reader any more, the error is ignored, so that it does not end the wait.
    """
    with _lock, contextlib.suppress(OSError):
        sys.stdout.write(f"{escape_control_characters(text)}\n")
        sys.stdout.flush()
