"""Default of `deferrable`, time limits over a deferral, and the delay before a trigger fires."""

from __future__ import annotations

import asyncio
import os
import time
from configparser import RawConfigParser
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainjob_airflow.version_compat import conf

if TYPE_CHECKING:
    from airflow.sdk import Context

MIN_TRIGGER_SECONDS = 15.0
"""Minimum time in seconds between the start of a scheduled task's trigger and its event.

The executor reports the end of a task's worker process some time after the task was deferred. If the task is already
queued again at that moment, Airflow 3.3 mistakes the report for the end of the new run and fails the task ("finished
with state success, but the task instance's state attribute is queued"; SchedulerJobRunner.process_executor_events).

Three delays add up before that report is processed. The worker first finishes its last work, such as sending its log
away. The supervisor then notices the end of its process after at most `[workers] min_heartbeat_interval`, 5 s. Finally,
the scheduler needs one round.
"""


def deferrable_by_default() -> bool:
    """Return `[operators] default_deferrable`, or True if nobody has set it.

    The environment or airflow.cfg sets it. Airflow 3.3 writes `default_deferrable = false` into each airflow.cfg that
    it creates.
    """
    # The method of the class itself does not know Airflow's own defaults, which are false for all operators.
    is_in_file = RawConfigParser.has_option(conf, "operators", "default_deferrable")
    if is_in_file or "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE" in os.environ:
        return conf.getboolean("operators", "default_deferrable")
    return True


def get_deadline(context: Context, time_limit: timedelta) -> float:
    """Return the Unix time in seconds at which a time limit on this try of a task is reached.

    The limit counts from the start of the task on a worker. It starts again if the worker is stopped and another one
    continues the try, as Airflow's own time limits do.

    Args:
        context: context of the task before its deferral.
        time_limit: the limit.
    """
    return float((context["ti"].start_date + time_limit).timestamp())


async def delay_event(started_at: float, task_instance: Any) -> None:
    """Wait until a trigger may fire, `MIN_TRIGGER_SECONDS` after its start.

    Under `dag.test()` there is no scheduler and no task instance, and the function returns at once.

    Args:
        started_at: time at which the trigger was started, in seconds of `time.monotonic`.
        task_instance: the trigger's task instance; None under `dag.test()`.
    """
    if task_instance is not None:
        await asyncio.sleep(max(0.0, started_at + MIN_TRIGGER_SECONDS - time.monotonic()))
