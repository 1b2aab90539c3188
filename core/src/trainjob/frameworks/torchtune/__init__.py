"""TorchTune as a training framework.

The package `pod` contains the code that runs in the training's pod. Names are imported on first use, because an image
with `pod` needs no pydantic.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# The modules that define these names.
_MODULES = ("config", "datasets", "methods")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in _MODULES:
            names = vars(importlib.import_module(f"{__name__}.{module}"))
            if name in names:
                return names[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
