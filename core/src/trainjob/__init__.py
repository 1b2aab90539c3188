"""Kubeflow Trainer v2 jobs as workflow steps: build, submit or adopt, wait, follow, export.

Names are imported on first use: `import trainjob` is cheap, and no kubernetes module is loaded before a cluster is asked.
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

_HOMES = {
    "cluster": ("Cluster", "Connection", "connect"),
    "errors": ("InvalidSpec", "JobDeleted", "JobFailed", "TrainJobError", "WaitTimeout"),
    "run": ("Adopt", "JobReference", "Limits", "Listener", "RunKey", "cancel", "submit", "wait", "wait_async"),
    "spec": (
        "BuiltinTrainer",
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
        "LoraConfig",
        "Loss",
        "Placement",
        "Queue",
        "Runtime",
        "S3DatasetInitializer",
        "S3ModelInitializer",
        "SecretKeyReference",
        "SecretReference",
        "TorchTuneConfig",
        "TorchTuneInstructDataset",
        "TrainJob",
        "Workspace",
    ),
    "status": ("Outcome", "Phase", "Progress"),
}
_HOME_OF = {name: room for room, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604 - one list, not two
    *sorted(_HOME_OF)
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
