"""Kubeflow Trainer v2 jobs as Airflow tasks.

Each class is imported on first use, so that `import trainjob_airflow` adds no time to the parsing of DAGs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainjob_airflow.hooks.trainjob import TrainJobHook
    from trainjob_airflow.operators.lifecycle import (
        DeleteTrainJobOperator,
        ResumeTrainJobOperator,
        SuspendTrainJobOperator,
    )
    from trainjob_airflow.operators.steps import (
        EvaluateOperator,
        ExportModelOperator,
        FineTuneOperator,
        GenerateOperator,
        InitializeDatasetOperator,
        InitializeModelOperator,
        PromoteOperator,
        RollbackOperator,
        TrainJobOperator,
    )
    from trainjob_airflow.operators.sweep import TrainJobSweepOperator
    from trainjob_airflow.operators.workspace import Workspace
    from trainjob_airflow.sensors.trainjob import TrainJobSensor
    from trainjob_airflow.triggers.end import TrainJobEndTrigger
    from trainjob_airflow.triggers.event import TrainJobEventTrigger
    from trainjob_airflow.triggers.trainjob import TrainJobTrigger

_MODULES = {
    "DeleteTrainJobOperator": "operators.lifecycle",
    "EvaluateOperator": "operators.steps",
    "ExportModelOperator": "operators.steps",
    "FineTuneOperator": "operators.steps",
    "GenerateOperator": "operators.steps",
    "InitializeDatasetOperator": "operators.steps",
    "InitializeModelOperator": "operators.steps",
    "PromoteOperator": "operators.steps",
    "ResumeTrainJobOperator": "operators.lifecycle",
    "RollbackOperator": "operators.steps",
    "SuspendTrainJobOperator": "operators.lifecycle",
    "TrainJobEndTrigger": "triggers.end",
    "TrainJobEventTrigger": "triggers.event",
    "TrainJobHook": "hooks.trainjob",
    "TrainJobOperator": "operators.steps",
    "TrainJobSensor": "sensors.trainjob",
    "TrainJobSweepOperator": "operators.sweep",
    "TrainJobTrigger": "triggers.trainjob",
    "Workspace": "operators.workspace",
}

__all__ = [
    "DeleteTrainJobOperator",
    "EvaluateOperator",
    "ExportModelOperator",
    "FineTuneOperator",
    "GenerateOperator",
    "InitializeDatasetOperator",
    "InitializeModelOperator",
    "PromoteOperator",
    "ResumeTrainJobOperator",
    "RollbackOperator",
    "SuspendTrainJobOperator",
    "TrainJobEndTrigger",
    "TrainJobEventTrigger",
    "TrainJobHook",
    "TrainJobOperator",
    "TrainJobSensor",
    "TrainJobSweepOperator",
    "TrainJobTrigger",
    "Workspace",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("airflow-provider-trainjob")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
