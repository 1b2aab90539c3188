"""Watchdog of a training: when it counts as hanging, diverging, slow or idle, and what follows."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.durations import Duration

WatchdogAction = Literal["report", "restart", "fail"]


def _validate_limit(limit: timedelta) -> timedelta:
    if limit < timedelta(seconds=1):
        raise invalid_field("", f"{limit.total_seconds():g} s", "it must be at least one second")
    return limit


_Limit = Annotated[Duration, AfterValidator(_validate_limit)]
_Factor = Annotated[float, Field(gt=1)]


class Watchdog(Spec):
    """Limits of a training's silence, loss and pace, and the action when it hangs or diverges.

    A silent rank hangs if its process is stopped, blocked or gone, or if nothing has changed in its stack and little in
    its files while it was looked at. An active one, such as a long save or evaluation, hangs after ten times the limit.

    Attributes:
        silence: time without a step, such as `10m`, after which the processes of a training are looked at. None means
            20 times the median of its steps, and at least 5 minutes; until it has made some steps, 30 minutes.
        first_step_within: time until the first step after which they are looked at; None means no limit.
        loss_factor: number above 1; a training diverges if its loss is more than so many times its best one, and above
            its first one, in 5 lines of the log in a row. None means that only losses that are not finite count, in as
            many lines.
        slow_factor: number above 1; a warning follows if the median step takes so many times as long as the best one so
            far. None means no warning.
        min_gpu_percent: a warning follows if the GPUs of a pod compute for less of the time, in percent, on average
            over 5 minutes with steps. The pod needs `nvidia-smi`. None means no warning.
        action: what follows a hang: `report` writes the ranks, their places and stacks to the log; `restart` also ends
            the TrainJob, and another attempt starts as after an interruption (`interruption_retries`); `fail` ends it.
            After a divergence, `report` writes a warning, and the others end the TrainJob, because the same rows would
            let another attempt diverge, too.
        avoid_nodes: whether the attempts after a hang run on other nodes of the cluster than the ranks that hung. They
            stay pending if no other node fits. Trainer 2.1 and later.
    """

    silence: _Limit | None = None
    first_step_within: _Limit | None = None
    loss_factor: _Factor | None = None
    slow_factor: _Factor | None = None
    min_gpu_percent: Annotated[float, Field(gt=0, le=100)] | None = None
    action: WatchdogAction = "report"
    avoid_nodes: bool = False
