"""Polling with a deadline, for conditions that no watch reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T | None], seconds: float = 300.0, *, interval: float = 0.05) -> T:
    """Return the first true result of `condition`, or fail after the deadline.

    The interval between two calls is in seconds, too. The deadline is for a condition that is never met: on a busy
    machine, everything takes ten times as long.
    """
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"the condition was not met within {seconds} s")
        time.sleep(interval)
