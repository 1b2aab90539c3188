"""Sizes of the benchmarks: those of the measured results, or the smallest ones, with which a test runs each part.

The variable `BENCH_SMALLEST` selects them, because most parts run in processes of their own.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")


def size(measured: T, smallest: T) -> T:
    """Return the size for this run."""
    return smallest if os.environ.get("BENCH_SMALLEST") else measured
