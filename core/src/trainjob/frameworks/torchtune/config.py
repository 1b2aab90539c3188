"""Configuration of TorchTune: the Kubeflow SDK's classes and fields, and additional ones."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field, field_validator

from trainjob.frameworks.torchtune.datasets import TorchTuneDataset, to_enum_value
from trainjob.frameworks.torchtune.methods import Distillation, PreferenceTuning, Quantization, QuantizationAware
from trainjob.frameworks.torchtune.models import MODELS
from trainjob.spec.base import Spec, invalid_field
from trainjob.spec.credential_checks import check_command
from trainjob.spec.framework import FrameworkConfig

MANAGED_KEYS = ("output_dir", "tokenizer.path", "tokenizer.merges_file", "checkpointer.checkpoint_dir")
"""Keys for the locations of files; the Trainer refuses them in arguments (Trainer 2.3, plugins/torch/torchtune.go)."""
RECIPE_KEYS = ("model.lora_attn_modules", "model.quantize_base", "model.use_dora")
"""Keys by which the Trainer chooses the recipe (Trainer 2.3, plugins/torch/torchtune.go)."""
OPERATIONAL_KEYS = (
    *("compile", "enable_activation_checkpointing", "enable_activation_offloading"),
    *("log_every_n_steps", "log_level", "log_peak_memory_stats", "metric_logger.log_dir", "metric_logger._component_"),
    *("profiler.enabled", "profiler.output_dir"),
)
"""Keys of overrides that say how a training is computed or logged."""
METHODS = ("preference_tuning", "distillation", "quantization_aware", "quantization")
_ATTENTION = ("q_proj", "k_proj", "v_proj", "output_proj")
_LONGEST_ARGUMENT = 65_536  # characters; the CRD's limit up to Trainer 2.2


class DataType(str, Enum):
    """Data type of model and optimizer."""

    BF16 = "bf16"
    FP32 = "fp32"


class Loss(str, Enum):
    """Loss function."""

    CEWithChunkedOutputLoss = "torchtune.modules.loss.CEWithChunkedOutputLoss"


DataTypeField = Annotated[DataType, BeforeValidator(to_enum_value)]
LossField = Annotated[Loss, BeforeValidator(to_enum_value)]


class LoraConfig(Spec):
    """Configuration of LoRA; of QLoRA with `quantize_base`, of DoRA with `use_dora`.

    Attributes:
        apply_lora_to_mlp: whether LoRA also applies to the MLP of each layer.
        apply_lora_to_output: whether LoRA also applies to the output projection.
        lora_attn_modules: projections of the attention that LoRA applies to.
        lora_rank: rank of the update.
        lora_alpha: scale of the update.
        lora_dropout: probability of dropping an input of the update, 0-1.
        quantize_base: whether to keep the base model in 4 bits (NF4).
        use_dora: whether to learn the magnitudes of the weights, too.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("r", "rank"), "lora_rank"),
        "alpha": "lora_alpha",
        "target_modules": "lora_attn_modules",
        "load_in_4bit": "quantize_base",
    }

    apply_lora_to_mlp: bool | None = None
    apply_lora_to_output: bool | None = None
    lora_attn_modules: tuple[str, ...] = ("q_proj", "v_proj", "output_proj")
    lora_rank: int | None = Field(default=None, ge=1)
    lora_alpha: int | None = Field(default=None, ge=1)
    lora_dropout: float | None = Field(default=None, ge=0, lt=1)
    quantize_base: bool | None = None
    use_dora: bool | None = None

    @field_validator("lora_attn_modules")
    @classmethod
    def _validate_modules(cls, modules: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [module for module in modules if module not in _ATTENTION]
        if unknown or not modules:
            raise invalid_field("", modules, f"give one or more of {', '.join(_ATTENTION)}")
        return modules

    @property
    def is_qlora(self) -> bool:
        """Whether the recipe is QLoRA's: a quantized base, no DoRA (Trainer 2.3, torchtune.go)."""
        return bool(self.quantize_base) and not self.use_dora


class TorchTuneConfig(FrameworkConfig):
    """Configuration of a TorchTune run.

    Set at most one of the methods `preference_tuning`, `distillation`, `quantization_aware` and `quantization`. Each of
    them needs a workspace. See `FrameworkConfig` for nodes, processes and resources.

    Attributes:
        dtype: data type of model and optimizer.
        batch_size: samples that a process computes at once.
        epochs: passes over the dataset.
        loss: loss function.
        peft_config: configuration of LoRA, QLoRA or DoRA; None trains all weights.
        dataset_preprocess_config: how rows become prompts: a `TorchTuneInstructDataset`, `TorchTuneChatDataset` or
            `TorchTunePreferenceDataset`; None means parquet files with the rows that the recipe reads.
        seed: random seed.
        learning_rate: the optimizer's learning rate.
        max_steps_per_epoch: number of steps after which each epoch ends early.
        gradient_accumulation_steps: batches for each optimizer step.
        preference_tuning: training on pairs of a better and a worse answer (DPO).
        distillation: training on the dataset's answers and on the outputs of a larger model.
        quantization_aware: training that prepares the model for quantization.
        quantization: post-training quantization of the model; nothing is trained.
        overrides: any other `key=value` of the recipe's configuration, as on the command line of `tune run`; `~key`
            removes a key.
    """

    framework: ClassVar[str] = "torchtune"
    usage: ClassVar[str] = f'config={{"framework": "torchtune"}} trains {", ".join(MODELS)} with TorchTune'
    field_aliases: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("num_train_epochs", "num_epochs"), "epochs"),
        "per_device_train_batch_size": "batch_size",
        "lr": "learning_rate",
        "precision": "dtype",
        **dict.fromkeys(("gpus", "num_gpus", "resources"), "resources_per_node"),
    }
    operational_fields: ClassVar[tuple[str, ...]] = (
        *FrameworkConfig.operational_fields,
        *(f"overrides.{key}" for key in OPERATIONAL_KEYS),
    )
    continued_fields: ClassVar[tuple[str, ...]] = ("epochs",)

    dtype: DataTypeField | None = None
    batch_size: int | None = Field(default=None, ge=1)
    epochs: int | None = Field(default=None, ge=1)
    loss: LossField | None = None
    peft_config: LoraConfig | None = None
    dataset_preprocess_config: TorchTuneDataset | None = None
    seed: int | None = Field(default=None, ge=0)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_steps_per_epoch: int | None = Field(default=None, ge=1)
    gradient_accumulation_steps: int | None = Field(default=None, ge=1)
    preference_tuning: PreferenceTuning | None = None
    distillation: Distillation | None = None
    quantization_aware: QuantizationAware | None = None
    quantization: Quantization | None = None
    overrides: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the fields in `METHODS` that are set; empty for supervised fine-tuning."""
        return tuple(name for name in METHODS if getattr(self, name) is not None)

    @field_validator("overrides")
    @classmethod
    def _validate_overrides(cls, overrides: tuple[str, ...]) -> tuple[str, ...]:
        for override in overrides:
            key, equals, _ = override.partition("=")
            removes = override.startswith("~") and "=" not in override
            if len(override) > _LONGEST_ARGUMENT:
                raise invalid_field("", override, f"an argument has at most {_LONGEST_ARGUMENT} characters")
            if not removes and (not equals or not key or override.count("=") != 1 or override.startswith("-")):
                raise invalid_field("", override, "each must be key=value with exactly one '=', or ~key")
            if key.lstrip("~") in MANAGED_KEYS:
                raise invalid_field(
                    "",
                    override,
                    f"{', '.join(MANAGED_KEYS)} are reserved: the step sets them to folders of the workspace",
                )
            if key.lstrip("~") in RECIPE_KEYS:
                raise invalid_field("", override, "it determines the recipe: give it in peft_config=LoraConfig(...)")
        check_command(overrides, "")
        return overrides
