"""Polling with a deadline, for conditions that no watch reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], seconds: float = 60.0) -> T:
    """Return the first true result of `look`; fail after the deadline."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"nothing after {seconds} s")
        time.sleep(0.05)
