"""Kubeflow Trainer v2 jobs as workflow steps.

The package builds TrainJobs, submits or adopts them, waits for them, follows their logs and exports their models. Names
are imported on first use. So `import trainjob` is cheap, and no kubernetes module is loaded before the first request to
a cluster.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainjob.client import Cluster, Connection, connect
    from trainjob.errors import (
        CommandFailed,
        DeadlineExceeded,
        ImageUnavailable,
        Interrupted,
        InvalidSpec,
        JobDeleted,
        JobFailed,
        NeverStarted,
        OutOfMemory,
        TrainJobError,
        WaitTimeout,
    )
    from trainjob.frameworks.llamafactory import LLaMAFactoryConfig, LLaMAFactoryLoraConfig
    from trainjob.frameworks.torchtune import (
        DataFormat,
        DataType,
        Distillation,
        LoraConfig,
        Loss,
        PreferenceTuning,
        Quantization,
        QuantizationAware,
        TorchTuneChatDataset,
        TorchTuneConfig,
        TorchTuneInstructDataset,
        TorchTunePreferenceDataset,
    )
    from trainjob.frameworks.trl import TRLConfig, TRLLoraConfig
    from trainjob.frameworks.unsloth import UnslothConfig, UnslothLoraConfig
    from trainjob.lifecycle import JobReference, Limits, Listener, RunKey, cancel, submit, wait, wait_async
    from trainjob.spec import (
        BuiltinTrainer,
        Champion,
        Code,
        CustomTrainer,
        CustomTrainerContainer,
        DataCacheInitializer,
        Evaluate,
        ExportModel,
        FineTune,
        Gate,
        Generate,
        HuggingFaceDatasetInitializer,
        HuggingFaceModelInitializer,
        InitializeDataset,
        InitializeModel,
        Initializer,
        MLflow,
        MLflowRegistry,
        ModelCheck,
        ModelRegistry,
        Placement,
        PodSecurityContext,
        Promote,
        Queue,
        ResourceRequirements,
        ResumeFrom,
        Rollback,
        Runtime,
        S3DatasetInitializer,
        S3ModelInitializer,
        SecretKeyReference,
        SecretReference,
        SecurityContext,
        SmokeRequest,
        TensorBoard,
        TrainJob,
        TrainJobManifest,
        Volume,
        WandB,
        Watchdog,
        WorkspaceVolume,
    )
    from trainjob.status import Outcome, Phase, Progress

__all__ = [
    "BuiltinTrainer",
    "Champion",
    "Cluster",
    "Code",
    "CommandFailed",
    "Connection",
    "CustomTrainer",
    "CustomTrainerContainer",
    "DataCacheInitializer",
    "DataFormat",
    "DataType",
    "DeadlineExceeded",
    "Distillation",
    "Evaluate",
    "ExportModel",
    "FineTune",
    "Gate",
    "Generate",
    "HuggingFaceDatasetInitializer",
    "HuggingFaceModelInitializer",
    "ImageUnavailable",
    "InitializeDataset",
    "InitializeModel",
    "Initializer",
    "Interrupted",
    "InvalidSpec",
    "JobDeleted",
    "JobFailed",
    "JobReference",
    "LLaMAFactoryConfig",
    "LLaMAFactoryLoraConfig",
    "Limits",
    "Listener",
    "LoraConfig",
    "Loss",
    "MLflow",
    "MLflowRegistry",
    "ModelCheck",
    "ModelRegistry",
    "NeverStarted",
    "OutOfMemory",
    "Outcome",
    "Phase",
    "Placement",
    "PodSecurityContext",
    "PreferenceTuning",
    "Progress",
    "Promote",
    "Quantization",
    "QuantizationAware",
    "Queue",
    "ResourceRequirements",
    "ResumeFrom",
    "Rollback",
    "RunKey",
    "Runtime",
    "S3DatasetInitializer",
    "S3ModelInitializer",
    "SecretKeyReference",
    "SecretReference",
    "SecurityContext",
    "SmokeRequest",
    "TRLConfig",
    "TRLLoraConfig",
    "TensorBoard",
    "TorchTuneChatDataset",
    "TorchTuneConfig",
    "TorchTuneInstructDataset",
    "TorchTunePreferenceDataset",
    "TrainJob",
    "TrainJobError",
    "TrainJobManifest",
    "UnslothConfig",
    "UnslothLoraConfig",
    "Volume",
    "WaitTimeout",
    "WandB",
    "Watchdog",
    "WorkspaceVolume",
    "cancel",
    "connect",
    "submit",
    "wait",
    "wait_async",
]

# The packages that define these names, the cheapest to import first.
_PACKAGES = (
    "errors",
    "spec",
    "frameworks.torchtune",
    "frameworks.trl",
    "frameworks.llamafactory",
    "frameworks.unsloth",
    "status",
    "lifecycle",
    "client",
)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from trainjob.version import VERSION

        return VERSION
    if name in __all__:
        for package in _PACKAGES:
            module = importlib.import_module(f"{__name__}.{package}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
