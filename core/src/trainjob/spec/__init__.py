"""Requests of users, which are validated when they are created, before anything is sent.

Names and fields are those of the Kubeflow SDK if it has them. The SDK's own objects are accepted, too.
"""

from trainjob.spec.checkpoints import ResumeFrom
from trainjob.spec.code import Code, PackedCode
from trainjob.spec.evaluation import Champion, Evaluate, Gate, Generate
from trainjob.spec.framework import FrameworkConfig
from trainjob.spec.initializers import (
    DataCacheInitializer,
    HuggingFaceDatasetInitializer,
    HuggingFaceModelInitializer,
    Initializer,
    S3DatasetInitializer,
    S3ModelInitializer,
)
from trainjob.spec.job import ModelCheck, TrainJob
from trainjob.spec.manifest import TrainJobManifest
from trainjob.spec.promotion import Promote, Rollback, SmokeRequest
from trainjob.spec.queue import Queue
from trainjob.spec.registry import MLflowRegistry, ModelRegistry
from trainjob.spec.resources import Placement, ResourceRequirements, Runtime
from trainjob.spec.secrets import SecretKeyReference, SecretReference
from trainjob.spec.security_context import PodSecurityContext, SecurityContext
from trainjob.spec.steps import ExportModel, FineTune, InitializeDataset, InitializeModel, Step
from trainjob.spec.tracking import MLflow, TensorBoard, WandB
from trainjob.spec.trainers import BuiltinTrainer, CustomTrainer, CustomTrainerContainer
from trainjob.spec.volumes import Volume, WorkspaceVolume
from trainjob.spec.watchdog import Watchdog

__all__ = [
    "BuiltinTrainer",
    "Champion",
    "Code",
    "CustomTrainer",
    "CustomTrainerContainer",
    "DataCacheInitializer",
    "Evaluate",
    "ExportModel",
    "FineTune",
    "FrameworkConfig",
    "Gate",
    "Generate",
    "HuggingFaceDatasetInitializer",
    "HuggingFaceModelInitializer",
    "InitializeDataset",
    "InitializeModel",
    "Initializer",
    "MLflow",
    "MLflowRegistry",
    "ModelCheck",
    "ModelRegistry",
    "PackedCode",
    "Placement",
    "PodSecurityContext",
    "Promote",
    "Queue",
    "ResourceRequirements",
    "ResumeFrom",
    "Rollback",
    "Runtime",
    "S3DatasetInitializer",
    "S3ModelInitializer",
    "SecretKeyReference",
    "SecretReference",
    "SecurityContext",
    "SmokeRequest",
    "Step",
    "TensorBoard",
    "TrainJob",
    "TrainJobManifest",
    "Volume",
    "WandB",
    "Watchdog",
    "WorkspaceVolume",
]
