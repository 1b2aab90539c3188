"""TorchTune as a training framework.

The package `pod` contains the code that runs in the training's pod.
"""

from trainjob.frameworks.torchtune.config import DataType, LoraConfig, Loss, TorchTuneConfig
from trainjob.frameworks.torchtune.datasets import (
    DataFormat,
    TorchTuneChatDataset,
    TorchTuneInstructDataset,
    TorchTunePreferenceDataset,
)
from trainjob.frameworks.torchtune.methods import Distillation, PreferenceTuning, Quantization, QuantizationAware

__all__ = [
    "DataFormat",
    "DataType",
    "Distillation",
    "LoraConfig",
    "Loss",
    "PreferenceTuning",
    "Quantization",
    "QuantizationAware",
    "TorchTuneChatDataset",
    "TorchTuneConfig",
    "TorchTuneInstructDataset",
    "TorchTunePreferenceDataset",
]
