"""What a person asks for: checked when it is made, so that nothing wrong is ever sent.

Names and fields are the Kubeflow SDK's where it has them; its own objects are accepted by their attributes.
"""

from trainjob.spec.initializers import (
    DataCacheInitializer,
    HuggingFaceDatasetInitializer,
    HuggingFaceModelInitializer,
    Initializer,
    S3DatasetInitializer,
    S3ModelInitializer,
)
from trainjob.spec.job import TrainJob
from trainjob.spec.resources import Placement, Queue, Runtime, Workspace
from trainjob.spec.secrets import SecretKeyReference, SecretReference
from trainjob.spec.steps import ExportModel, FineTune, InitializeDataset, InitializeModel, Step
from trainjob.spec.torchtune import DataFormat, DataType, LoraConfig, Loss, TorchTuneConfig, TorchTuneInstructDataset
from trainjob.spec.trainers import BuiltinTrainer, CustomTrainer, CustomTrainerContainer

__all__ = [
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
    "Step",
    "TorchTuneConfig",
    "TorchTuneInstructDataset",
    "TrainJob",
    "Workspace",
]
