"""Triggers that record when they fire, and one that measures the event loop.

The triggerer imports them from this file.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from airflow.providers.cncf.kubernetes.triggers.pod import KubernetesPodTrigger
from airflow.triggers.base import BaseTrigger, TriggerEvent

from trainjob_airflow.triggers.trainjob import TrainJobTrigger

_TICK, _STALL = 0.01, 0.05


class TimedTrainJobTrigger(TrainJobTrigger):
    """A TrainJobTrigger that records when it fires."""

    async def run(self):
        async for event in super().run():
            event.payload["fired"] = time.time()
            yield event


class TimedPodTrigger(KubernetesPodTrigger):
    """A KubernetesPodTrigger that records when it fires."""

    def serialize(self):
        return f"{__name__}.TimedPodTrigger", super().serialize()[1]

    async def run(self):
        async for event in super().run():
            event.payload["fired"] = time.time()
            yield event


class LoopMonitorTrigger(BaseTrigger):
    """Trigger that measures the triggerer's event loop and memory.

    It returns the delays of the loop, and by how much the memory of the process grows.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def serialize(self):
        return f"{__name__}.LoopMonitorTrigger", {"folder": self.folder}

    async def run(self):
        folder = Path(self.folder)
        (folder / "ticking").touch()
        while not (folder / "flood").exists():  # noqa: ASYNC110 - another process creates the file
            await asyncio.sleep(_TICK)
        start, worst, stalls, most = _resident_bytes(), 0.0, [], 0
        while not (folder / "measured").exists():
            began, used = time.monotonic(), time.process_time()
            await asyncio.sleep(_TICK)
            late = time.monotonic() - began - _TICK
            worst, most = max(worst, late), max(most, _resident_bytes())
            if late > _STALL:
                stalls.append([began, time.monotonic(), time.process_time() - used])
        yield TriggerEvent({"worst": worst, "stalls": stalls, "grown_mb": (most - start) / 1e6})


def _resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
