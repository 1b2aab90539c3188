"""Messages of programs that could not write a file because a disk is full.

They were collected on a full tmpfs on Linux; `tests/unit/status/test_storage_full.py` has each with its library's
version. Most of them name the error: ENOSPC, or EDQUOT of a quota. A few libraries report a failed write without the
reason. Their messages count, too, because a full disk is the usual reason. They are not a proof: an I/O error of the
volume and a limit on the file size have the same text (seen with torch 2.13.0).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["is_storage_full"]

# Texts of ENOSPC and EDQUOT in glibc, Rust and Go, of datasets (5.2.0, builder.py) and of SQLite (SQLITE_FULL).
_NAMED = r"no space left on device|disk quota exceeded|Error: Not enough disk space\. Needed: |database or disk is full"
# Failed writes without a reason: torch's writer of checkpoints (2.13.0; earlier versions have the second text) and
# numpy's tofile (2.4.6).
_FAILED_WRITE = (
    r"inline_container\.cc:\d+\] \. (?:unexpected pos \d+ vs \d+|PytorchStreamWriter failed writing file )|"
    r"OSError: \d+ requested and \d+ written"
)
_MESSAGE = re.compile(f"{_NAMED}|{_FAILED_WRITE}", re.IGNORECASE)
# libstdc++ has this text for reads, too. Only below these calls of torch.save, it is about a write (torch 2.13.0).
_STREAM_ERROR = "basic_ios::clear: iostream error"
_STREAM_WRITER = re.compile(r"^\s*(?:self\.file_like\.write_end_of_file|zip_file\.write_record)\(", re.MULTILINE)
# ENOSPC also means that memory or a limit of the kernel is used up: /dev/shm, semaphores in it, or inotify watches.
_NOT_A_DISK = re.compile(r"/dev/shm\b|\bshared memory\b|\binotify", re.IGNORECASE)  # noqa: S108 - not a path that is used
_SEMAPHORE = re.compile(r"\b_multiprocessing\.SemLock\(|\b_posixshmem\.shm_open\(")
# A program that only warns continues, so its failure has another reason.
_WARNING = re.compile(r"warn(?:ing)?\b", re.IGNORECASE)
_FRAME_LINES = 3  # the call, the marks below it (since Python 3.11), and a blank line


def is_storage_full(log_tail: Sequence[str]) -> bool:
    """Return whether the last lines of a failed container report a full disk.

    Args:
        log_tail: the last lines, oldest first.
    """
    return any(
        _reports_full_disk(line, "\n".join(log_tail[max(0, index - _FRAME_LINES) : index]))
        for index, line in enumerate(log_tail)
    )


def _reports_full_disk(line: str, calls: str) -> bool:
    """Return whether a line reports a full disk.

    Args:
        line: the line.
        calls: the lines before it; in a traceback, the call that failed.
    """
    if _STREAM_ERROR in line:
        return bool(_STREAM_WRITER.search(calls))
    found = _MESSAGE.search(line)
    if found is None or _NOT_A_DISK.search(line) or _SEMAPHORE.search(calls):
        return False
    return not _WARNING.search(line, 0, found.start())
