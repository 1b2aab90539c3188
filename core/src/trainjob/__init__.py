"""Kubeflow Trainer v2 jobs as workflow steps: build, submit or adopt, wait, follow, export.

Names are imported on first use: `import trainjob` is cheap, and no kubernetes module is loaded before a cluster is
asked.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainjob.cluster import Cluster, Connection, connect
    from trainjob.errors import InvalidSpec, JobDeleted, JobFailed, TrainJobError, WaitTimeout
    from trainjob.run import Adopt, JobReference, Limits, Listener, RunKey, cancel, submit, wait, wait_async
    from trainjob.spec import (
        BuiltinTrainer,
        CustomTrainer,
        CustomTrainerContainer,
        DataCacheInitializer,
        DataFormat,
        DataType,
        ExportModel,
        FineTune,
        HuggingFaceDatasetInitializer,
        HuggingFaceModelInitializer,
        InitializeDataset,
        InitializeModel,
        Initializer,
        LoraConfig,
        Loss,
        Placement,
        Queue,
        Runtime,
        S3DatasetInitializer,
        S3ModelInitializer,
        SecretKeyReference,
        SecretReference,
        TorchTuneConfig,
        TorchTuneInstructDataset,
        TrainJob,
        Workspace,
    )
    from trainjob.status import Outcome, Phase, Progress

__all__ = [
    "Adopt",
    "BuiltinTrainer",
    "Cluster",
    "Connection",
    "CustomTrainer",
    "CustomTrainerContainer",
    "DataCacheInitializer",
    "DataFormat",
    "DataType",
    "ExportModel",
    "FineTune",
    "HuggingFaceDatasetInitializer",
    "HuggingFaceModelInitializer",
    "InitializeDataset",
    "InitializeModel",
    "Initializer",
    "InvalidSpec",
    "JobDeleted",
    "JobFailed",
    "JobReference",
    "Limits",
    "Listener",
    "LoraConfig",
    "Loss",
    "Outcome",
    "Phase",
    "Placement",
    "Progress",
    "Queue",
    "RunKey",
    "Runtime",
    "S3DatasetInitializer",
    "S3ModelInitializer",
    "SecretKeyReference",
    "SecretReference",
    "TorchTuneConfig",
    "TorchTuneInstructDataset",
    "TrainJob",
    "TrainJobError",
    "WaitTimeout",
    "Workspace",
    "cancel",
    "connect",
    "submit",
    "wait",
    "wait_async",
]

# Where they come from, the cheapest first.
_ROOMS = ("errors", "spec", "status", "run", "cluster")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for room in _ROOMS:
            module = importlib.import_module(f"{__name__}.{room}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
