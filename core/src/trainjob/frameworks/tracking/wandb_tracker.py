"""Tracked run in a project of Weights & Biases."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trainjob.frameworks.tracking.settings import TrackedRun, TrainingEnd
from trainjob.frameworks.tracking.trackers import StepValues
from trainjob.programs.locked_library import import_library

__all__ = ["create"]

_STEP = "step"
_INIT_TIMEOUT = 60  # seconds


def create(run: TrackedRun) -> _WandBTracker:
    """Return the tracker of a run.

    It has the options `project` and `mode`, and perhaps `entity`, `base_url`, `group` and `folder`.
    """
    return _WandBTracker(run)


class _WandBTracker:
    """A run of W&B; see [trainjob.frameworks.tracking.trackers.Tracker][] for the methods.

    After `open`, the library sends values in the background and repeats failed requests by itself.
    """

    title = "Weights & Biases"

    def __init__(self, run: TrackedRun) -> None:
        self._run = run
        self._wandb_run: Any = None

    def open(self) -> list[str]:
        options = self._run.options
        os.environ.setdefault("WANDB_SILENT", "true")
        folder = options.get("folder") or tempfile.gettempdir()  # not the training's working folder
        Path(folder).mkdir(parents=True, exist_ok=True)
        wandb = import_library("wandb", "frameworks.tracking.locks.wandb")
        settings = {"console": "off", "disable_git": True, "disable_code": True, "init_timeout": _INIT_TIMEOUT}
        if base_url := options.get("base_url"):
            settings["base_url"] = base_url
        self._wandb_run = wandb.init(
            project=options["project"],
            entity=options.get("entity"),
            group=options.get("group"),
            dir=folder,
            mode=options["mode"],
            id=self._run.run_id,
            name=self._run.name,
            resume="allow",
            config={**self._run.parameters, **self._run.tags},
            allow_val_change=True,  # the attempt's tags
            settings=wandb.Settings(**settings),
        )
        # The steps of a resumed training may overlap those of an earlier attempt. W&B refuses such values for its own
        # step, so ours is a value.
        self._wandb_run.define_metric(_STEP, hidden=True)
        self._wandb_run.define_metric("*", step_metric=_STEP)
        return [f"run {self._wandb_run.url}" if self._wandb_run.url else f"offline run in {self._wandb_run.dir}"]

    def record(self, steps: Sequence[StepValues]) -> None:
        for step in steps:
            self._wandb_run.log({_STEP: step.step, **step.values})

    def close(self, end: TrainingEnd) -> None:
        self._wandb_run.finish(end.exit_code)
