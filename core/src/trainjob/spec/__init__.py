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
from trainjob.spec.manifest import TrainJobManifest
from trainjob.spec.methods import Distillation, PreferenceTuning, Quantization, QuantizationAware
from trainjob.spec.preprocessing import (
    DataFormat,
    TorchTuneChatDataset,
    TorchTuneInstructDataset,
    TorchTunePreferenceDataset,
)
from trainjob.spec.registry import ModelRegistry
from trainjob.spec.resources import Placement, Queue, Runtime
from trainjob.spec.secrets import SecretKeyReference, SecretReference
from trainjob.spec.steps import ExportModel, FineTune, InitializeDataset, InitializeModel, Step
from trainjob.spec.torchtune import DataType, LoraConfig, Loss, TorchTuneConfig
from trainjob.spec.trainers import BuiltinTrainer, CustomTrainer, CustomTrainerContainer
from trainjob.spec.volumes import Volume, Workspace

__all__ = [
    "BuiltinTrainer",
    "CustomTrainer",
    "CustomTrainerContainer",
    "DataCacheInitializer",
    "DataFormat",
    "DataType",
    "Distillation",
    "ExportModel",
    "FineTune",
    "HuggingFaceDatasetInitializer",
    "HuggingFaceModelInitializer",
    "InitializeDataset",
    "InitializeModel",
    "Initializer",
    "LoraConfig",
    "Loss",
    "ModelRegistry",
    "Placement",
    "PreferenceTuning",
    "Quantization",
    "QuantizationAware",
    "Queue",
    "Runtime",
    "S3DatasetInitializer",
    "S3ModelInitializer",
    "SecretKeyReference",
    "SecretReference",
    "Step",
    "TorchTuneChatDataset",
    "TorchTuneConfig",
    "TorchTuneInstructDataset",
    "TorchTunePreferenceDataset",
    "TrainJob",
    "TrainJobManifest",
    "Volume",
    "Workspace",
]
