"""A trigger that is held at a point in the triggerer.

The test then kills the triggerer once for many points.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from airflow.triggers.base import TriggerEvent

from tests.support import crash_points
from trainjob_airflow.triggers.trainjob import TrainJobTrigger

crash_points.install_traps(
    (*crash_points.TRIGGER_POINTS, crash_points.TRIGGER_REASSIGNED, *crash_points.KILLED_TRIGGER_POINTS)
)


class TrappedTrigger(TrainJobTrigger):
    """The TrainJob trigger with a trap.

    Args:
        folder: the trap's folder.
        **arguments: the arguments of the TrainJob trigger.
    """

    def __init__(self, *, folder: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.folder = folder

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path, arguments = super().serialize()
        return path, {**arguments, "folder": self.folder}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        crash_points.use_trap_folder(Path(self.folder))
        async for event in super().run():
            yield event
