"""What TorchTune does, where it is not plain fine-tuning on answers."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from trainjob.spec.base import Spec, refuse

# Those that TorchTune names (torchtune 0.6.1, recipes/quantize.py); each divides every layer of the models here. With
# another one torchao leaves a layer as it is and says nothing (torchao 0.15.0, quantization/quant_api.py).
_GroupSize = Literal[32, 64, 128, 256]


class PreferenceTuning(Spec):
    """Direct preference optimization (DPO): from pairs of a better and a worse answer, against the model as it was.

    Attributes:
        beta: how strongly to stay near the model as it was.
        label_smoothing: the share of pairs that may be the wrong way round, 0-0.5.
    """

    beta: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    label_smoothing: float | None = Field(default=None, ge=0, lt=0.5)


class Distillation(Spec):
    """Knowledge distillation: also from what a larger model holds likely; trains LoRA.

    Attributes:
        teacher: the larger model: `llama3.1-8b`, or one that can be fine-tuned here.
        teacher_path: where it lies below `/workspace`, such as `teacher/model`.
        ratio: how much the teacher counts against the dataset's answers, 0-1.
    """

    teacher: str
    teacher_path: str
    ratio: float | None = Field(default=None, ge=0, le=1)

    @field_validator("teacher_path")
    @classmethod
    def _is_below(cls, path: str) -> str:
        parts = path.strip("/").split("/")
        if path.startswith("/") or not parts[0] or ".." in parts or "=" in path:
            raise refuse("", path, "it must be a path below /workspace, such as teacher/model")
        return path.strip("/")


class QuantizationAware(Spec):
    """Quantization-aware training (QAT): the model learns to bear being quantized to 4 bits afterwards.

    Attributes:
        group_size: how many weights share a scale: 32, 64, 128 or 256.
    """

    group_size: _GroupSize | None = None


class Quantization(Spec):
    """Quantizes a model, and trains nothing: weights to 4 bits, what flows between the layers to 8.

    Attributes:
        group_size: how many weights share a scale: 32, 64, 128 or 256; after quantization-aware training the same.
    """

    group_size: _GroupSize | None = None
