"""Data types and size of safetensors files, read without a library.

Format: 8 bytes little-endian length of the header, the header as JSON, the tensors' bytes. Source: safetensors 0.8
README, section "Format".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from trainjob.errors import ExportError

__all__ = ["LENGTH_BYTES", "bytes_by_dtype", "parse_tensors", "torch_dtype"]

LENGTH_BYTES = 8
"""Bytes of the header's length, at the beginning of a file."""
_HEADER_LIMIT = 100_000_000  # the limit of the safetensors library itself
_TORCH_NAMES = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def bytes_by_dtype(path: Path) -> Counter[str]:
    """Return the number of bytes of each safetensors dtype (`F32`, `BF16`, …) in a file.

    Raises:
        ExportError: the file is not a safetensors file, or is cut short, for example because the run was killed while
            it saved.
    """
    sizes: Counter[str] = Counter()
    end = 0
    header, data_begins = _header(path)
    for _, dtype, first, last in parse_tensors(header, str(path)):
        sizes[dtype] += last - first
        end = max(end, last)
    found, expected = path.stat().st_size, data_begins + end
    if found != expected:
        raise ExportError(
            f"{path} is truncated: it has {found} of {expected} bytes",
            hint="the run was killed while it saved; train again",
        )
    return sizes


def torch_dtype(paths: Iterable[Path]) -> str:
    """Return torch's name of the dtype that most bytes of the weights have (`bfloat16`).

    The result is empty if torch's model configurations have no name for the dtype.

    Raises:
        ExportError: see [bytes_by_dtype][].
    """
    sizes: Counter[str] = sum((bytes_by_dtype(path) for path in paths), Counter())
    return _TORCH_NAMES.get(sizes.most_common(1)[0][0], "") if sizes else ""


def _header(path: Path) -> tuple[dict[str, Any], int]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        raw = file.read(min(length, _HEADER_LIMIT))
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise _unreadable(str(path))
    return header, LENGTH_BYTES + length


def parse_tensors(header: dict[str, Any], file: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield the name, the dtype, the first byte and the end of each tensor in a header.

    Args:
        header: the parsed header.
        file: name of the file for messages.

    Raises:
        ExportError: the header is not that of a safetensors file.
    """
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        fields = tensor if isinstance(tensor, dict) else {}
        dtype, offsets = fields.get("dtype"), fields.get("data_offsets")
        if not (isinstance(dtype, str) and isinstance(offsets, list) and [type(at) for at in offsets] == [int, int]):
            raise _unreadable(file)
        yield name, dtype, *offsets


def _unreadable(file: str) -> ExportError:
    return ExportError(
        f"{file} is not a readable safetensors file", hint="the run was killed while it saved; train again"
    )
