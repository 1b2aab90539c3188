"""Format of a file with rows that has no extension, such as an artifact of Kubeflow Pipelines.

The libraries that read datasets know a file's format by its extension only.
"""

from __future__ import annotations

__all__ = ["HEAD_BYTES", "find_extension"]

HEAD_BYTES = 4096
"""Bytes from the beginning of a file that show its format."""
_MARKS = {b"PAR1": ".parquet", b"{": ".jsonl", b"[": ".json"}
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def find_extension(head: bytes) -> str:
    """Return the extension for a file that begins with these bytes.

    It is empty for an unknown format. Text whose first line has a comma is CSV.
    """
    text = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    for mark, extension in _MARKS.items():
        if text.startswith(mark):
            return extension
    first, line_end, _ = text.partition(b"\n")
    return ".csv" if line_end and b"," in first and _is_text(first) else ""


def _is_text(line: bytes) -> bool:
    try:
        return line.decode().strip().isprintable()
    except UnicodeDecodeError:
        return False
