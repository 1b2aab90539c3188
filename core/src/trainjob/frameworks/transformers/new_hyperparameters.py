"""Hyperparameters of a new training, while it loads the optimizer's state of another one."""

from __future__ import annotations

import contextlib
import copy
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

__all__ = ["keep_hyperparameters"]


@contextlib.contextmanager
def keep_hyperparameters(optimizer: Any, scheduler: Any, step: int) -> Iterator[None]:
    """Restore the new hyperparameters, and the schedule at a step, after a load.

    The optimizer's state of each parameter, such as its moments, stays as it was loaded.

    Args:
        optimizer: the new optimizer, before its first step.
        scheduler: its schedule.
        step: optimizer steps that the loaded state has done.
    """
    groups = [{name: copy.deepcopy(value) for name, value in _settings(group)} for group in optimizer.param_groups]
    schedule = copy.deepcopy(scheduler.state_dict())
    yield
    for group, settings in zip(optimizer.param_groups, groups, strict=True):
        group.update(settings)
    scheduler.load_state_dict(schedule)
    if "metrics" in inspect.signature(scheduler.step).parameters:
        return  # such a schedule follows the metrics from now on
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimizer's steps are those of the other training
        for _ in range(step):
            scheduler.step()


def _settings(group: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in group.items() if name != "params")
