"""An event loop that has its process to itself: when it is late, the machine was busy. Prints when, and by how much."""

from __future__ import annotations

import asyncio
import json
import time

_TICK = 0.01
LATE = 0.025  # seconds


async def main() -> None:
    """Print `[began, ended]` (`time.monotonic`) of each time that the loop came back late, until it is ended."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(_TICK)
        ended = time.monotonic()
        if ended - began - _TICK > LATE:
            print(json.dumps([began, ended]), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
