"""An event loop in a separate process, which is late only if the machine is busy; it prints its late ticks."""

from __future__ import annotations

import asyncio
import json
import time

_TICK = 0.01
LATE_SECONDS = 0.025


async def main() -> None:
    """Print start and end of each late tick of the loop until the process is ended.

    Each line is `[began, ended]` in seconds of `time.monotonic`.
    """
    while True:
        began = time.monotonic()
        await asyncio.sleep(_TICK)
        ended = time.monotonic()
        if ended - began - _TICK > LATE_SECONDS:
            print(json.dumps([began, ended]), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
