"""Methods of TorchTune other than supervised fine-tuning."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from trainjob.spec.base import Spec, invalid_field

# TorchTune documents these sizes (torchtune 0.6.1, recipes/quantize.py); each divides every layer of the models here.
# With another size, torchao skips a layer without a message (torchao 0.15.0, quantization/quant_api.py).
_GroupSize = Literal[32, 64, 128, 256]


class PreferenceTuning(Spec):
    """Direct preference optimization (DPO) on pairs of a better and a worse answer.

    The model before the training is the reference.

    Attributes:
        beta: how strongly the training keeps the model near the reference.
        label_smoothing: expected share of pairs in the wrong order, 0-0.5.
    """

    beta: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    label_smoothing: float | None = Field(default=None, ge=0, lt=0.5)


class Distillation(Spec):
    """Knowledge distillation: training on answers and on a larger model's probabilities.

    It can train only LoRA adapters.

    Attributes:
        teacher: name of the larger model: `llama3.1-8b`, or a model that can be fine-tuned here.
        teacher_path: the teacher's folder below `/workspace`, such as `teacher/model`.
        ratio: weight of the teacher against the dataset's answers, 0-1.
    """

    teacher: str
    teacher_path: str
    ratio: float | None = Field(default=None, ge=0, le=1)

    @field_validator("teacher_path")
    @classmethod
    def _validate_teacher_path(cls, path: str) -> str:
        parts = path.strip("/").split("/")
        if path.startswith("/") or not parts[0] or ".." in parts or "=" in path:
            raise invalid_field("", path, "it must be a path below /workspace, such as teacher/model")
        return path.strip("/")


class QuantizationAware(Spec):
    """Quantization-aware training (QAT), which prepares a model for 4-bit quantization.

    Attributes:
        group_size: number of weights that share a scale: 32, 64, 128 or 256.
    """

    group_size: _GroupSize | None = None


class Quantization(Spec):
    """Post-training quantization of a model: weights to 4 bits, activations to 8 bits.

    Attributes:
        group_size: number of weights that share a scale: 32, 64, 128 or 256. After quantization-aware training, use the
            same size.
    """

    group_size: _GroupSize | None = None
