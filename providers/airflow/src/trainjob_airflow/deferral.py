"""What all that wait in the triggerer have in common: whether they do, and how soon they may come back."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from airflow.sdk import conf

FIRST_SECONDS = 15.0
"""A trigger of a scheduled task does not fire in its first seconds.

The scheduler learns that a task's worker is done some time after the task was deferred. When the task has been queued
again by then, Airflow 3.3 takes the news for the end of the new run and fails the task ("finished with state success,
but the task instance's state attribute is queued"; SchedulerJobRunner.process_executor_events). The news takes the
worker's last work, such as sending its log away, then up to `[workers] min_heartbeat_interval`, 5 s, as the supervisor
may notice only then that its process has ended, then one round of the scheduler.
"""


def deferrable_by_default() -> bool:
    """True, unless `[operators] default_deferrable` says otherwise in the environment.

    Airflow writes `default_deferrable = false` into each airflow.cfg that it makes, so there it is nobody's wish.
    """
    return "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE" not in os.environ or conf.getboolean(
        "operators", "default_deferrable"
    )


async def first_seconds_over(began: float, task_instance: Any) -> None:
    """Wait until a trigger may fire: at once under `dag.test()`, which has no scheduler and no task instance.

    Args:
        began: when the trigger was started, by `time.monotonic`.
        task_instance: the trigger's.
    """
    if task_instance is not None:
        await asyncio.sleep(max(0.0, began + FIRST_SECONDS - time.monotonic()))
