"""A trigger that is held at a point in the triggerer, which is killed then: one kill for many points."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.triggers.base import TriggerEvent

from tests.support import crash_points
from trainjob_airflow.triggers.trainjob import TrainJobTrigger

crash_points.install((*crash_points.TRIGGER, crash_points.HANDED_OVER, *crash_points.KILLED_TRIGGER))


class TrappedTrigger(TrainJobTrigger):
    """As the one it is made from.

    Args:
        folder: where its trap is.
        **arguments: those of that one.
    """

    def __init__(self, *, folder: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.folder = folder

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path, arguments = super().serialize()
        return path, {**arguments, "folder": self.folder}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        crash_points.work_in(Path(self.folder))
        async for event in super().run():
            yield event
