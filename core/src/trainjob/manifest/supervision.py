"""Command with which a training is tracked and watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trainjob.framework_modules import load_modules
from trainjob.frameworks.supervision.watchdog import WatchdogSettings
from trainjob.manifest.tracking import LIBRARIES, build_tracked_run
from trainjob.packing import program_command
from trainjob.spec import TrainJob, Watchdog
from trainjob.spec.base import invalid_field
from trainjob.spec.job import Program
from trainjob.spec.tracking import Tracking
from trainjob.spec.trainers import MAX_ITEM_LENGTH, escape_expansion, validate_command
from trainjob.spec.volumes import WORKSPACE

_PACKAGES = (
    "trainjob.frameworks.supervision",
    *(
        f"trainjob.frameworks.{name}"
        for name in ("log_parser", "transformers_log_parser", "output_lines", "packed_code")
    ),
    *(f"trainjob.frameworks.tracking.{name}" for name in ("metric_reader", "recorder_process", "settings")),
    *(f"trainjob.{name}" for name in ("framework_modules", "job_variables", "credentials", "errors", "heartbeats")),
    *(f"trainjob.status.{name}" for name in ("progress", "nested_fields", "watchdog")),
)
# What the recorder of the metrics needs besides.
_RECORDER_PACKAGES = (
    *(f"trainjob.frameworks.tracking.{name}" for name in ("recorder", "trackers", "system_metrics")),
    *("trainjob.programs.locked_library", "trainjob.programs.pip_installation", "trainjob.mlflow_names"),
    *("trainjob.programs.fetch.record", "trainjob.programs.fetch.folder"),
)


def supervised_command(job: TrainJob, words: Sequence[str], metadata: Mapping[str, Any]) -> list[str]:
    """Return the command that starts, tracks and watches a training.

    Args:
        job: the request, with a tracker or a watchdog.
        words: the training's own command.
        metadata: name, namespace, labels and annotations of the TrainJob.

    Raises:
        InvalidSpec: the command is too long, or the parameters are.
    """
    options = []
    if job.tracking:
        options += ["--track", _describe_run(job, job.tracking, metadata)]
    if job.watchdog:
        options += ["--watchdog", describe_watchdog(job.watchdog).to_json()]
    program = supervision_program(job.tracking.backend if job.tracking else "", job.program)
    return list(validate_command((*program, *options, *words), "trainer.command"))


def supervision_program(backend: str = "", source: Program = "packed") -> list[str]:
    """Return the command of the program that supervises a training.

    It contains the log parsers of all frameworks that are installed here, because a container may run any of them.

    Args:
        backend: the tracker whose recorder the program contains; empty for none.
        source: place of the program's code.
    """
    packages = [*_PACKAGES[1:], *(module.__name__ for module in load_modules("log_parser"))]
    if backend:
        tracker = (f"{backend}_tracker", f"locks.{LIBRARIES[backend]}")
        packages += [*_RECORDER_PACKAGES, *(f"trainjob.frameworks.tracking.{name}" for name in tracker)]
    return program_command(_PACKAGES[0], *packages, source=source)


def describe_watchdog(watchdog: Watchdog) -> WatchdogSettings:
    """Return the settings of a watchdog as its program gets them."""
    limits = {"silence": watchdog.silence, "first_step_within": watchdog.first_step_within}
    seconds = {name: limit.total_seconds() for name, limit in limits.items() if limit is not None}
    numbers = watchdog.model_dump(include={"loss_factor", "slow_factor", "min_gpu_percent"})
    return WatchdogSettings(watchdog.action, **seconds, **numbers)


def _describe_run(job: TrainJob, tracking: Tracking, metadata: Mapping[str, Any]) -> str:
    dataset = f"{WORKSPACE}/dataset" if job.workspace else ""
    run = escape_expansion(build_tracked_run(tracking, metadata, dataset).to_json())
    if len(run) > MAX_ITEM_LENGTH:
        rule = f"all parameters and tags may have {MAX_ITEM_LENGTH} characters together: give fewer or shorter ones"
        raise invalid_field("tracking.parameters", f"{len(tracking.parameters)} parameters", rule)
    return run
