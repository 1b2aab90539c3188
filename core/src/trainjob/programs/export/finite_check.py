"""Check that the weights in a safetensors file are finite numbers, while the file is hashed.

It needs no library, and about half of the time of the hash. Format: see [trainjob.programs.export.weights][].
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from trainjob.errors import ExportError
from trainjob.programs.export.weights import LENGTH_BYTES, parse_tensors

__all__ = ["FiniteCheck"]


@dataclass(frozen=True)
class _Format:
    """A floating-point format, little-endian.

    A number whose exponent has only ones is NaN or infinity (IEEE 754).

    Attributes:
        size: bytes of a number.
        last_bytes: values of the last byte that such a number can have.
        least_byte_before: the smallest value that the byte before it then has.
    """

    size: int
    last_bytes: bytes
    least_byte_before: int


_FORMATS = {
    "F16": _Format(2, bytes([*range(0x7C, 0x80), *range(0xFC, 0x100)]), 0),
    "BF16": _Format(2, b"\x7f\xff", 0x80),
    "F32": _Format(4, b"\x7f\xff", 0x80),
    "F64": _Format(8, b"\x7f\xff", 0xF0),
}
_LONGEST_NUMBER = 8
_OTHER_BYTES = {name: bytes(set(range(256)) - set(each.last_bytes)) for name, each in _FORMATS.items()}


class FiniteCheck:
    """Check of one file, which gets the file's bytes in order.

    Args:
        name: name of the file for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._kept = b""  # the header until it is complete, then the last bytes
        self._position = 0  # of the first kept byte, counted from the first tensor
        self._tensors: list[tuple[int, int, str, str]] | None = None  # first byte, end, dtype, name; in reverse order

    def update(self, content: bytes | memoryview) -> None:
        """Check the next bytes.

        Raises:
            ExportError: a weight is NaN or infinite.
        """
        block = self._kept + content
        if self._tensors is None:
            length = LENGTH_BYTES + int.from_bytes(block[:LENGTH_BYTES], "little")
            if len(block) < max(length, LENGTH_BYTES):
                self._kept = block
                return
            header = json.loads(block[LENGTH_BYTES:length])
            found = ((first, end, dtype, name) for name, dtype, first, end in parse_tensors(header, self._name))
            self._tensors = sorted(found, reverse=True)
            block = block[length:]
        end = self._position + len(block)
        while self._tensors and self._tensors[-1][1] <= self._position:
            self._tensors.pop()
        for first, last, dtype, name in reversed(self._tensors):
            if first >= end:
                break
            if dtype in _FORMATS:
                self._check(block, first, last, dtype, name)
        self._kept = block[-(_LONGEST_NUMBER - 1) :]
        self._position = end - len(self._kept)

    def _check(self, block: bytes, first: int, last: int, dtype: str, name: str) -> None:
        """Check the whole numbers of a tensor in a block."""
        kind = _FORMATS[dtype]
        begin = max(first, self._position)
        begin += (first - begin) % kind.size
        stop = min(last, self._position + len(block))
        numbers = block[begin - self._position : stop - (stop - first) % kind.size - self._position]
        last_bytes = numbers[kind.size - 1 :: kind.size]
        if not last_bytes.translate(None, _OTHER_BYTES[dtype]):
            return
        before = numbers[kind.size - 2 :: kind.size]
        suspects = (byte for byte, after in zip(before, last_bytes, strict=False) if after in kind.last_bytes)
        if any(byte >= kind.least_byte_before for byte in suspects):
            raise ExportError(
                f"{self._name} contains no useful model: a number in {name} is NaN or infinite",
                hint="the training diverged: train again with a lower learning rate",
            )
