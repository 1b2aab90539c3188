"""Configuration that the frameworks on transformers' Trainer have in common."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator
from typing_extensions import Self

from trainjob.errors import Problem
from trainjob.spec.base import Spec, invalid_field, to_json_value
from trainjob.spec.dataset_rows import ColumnNames
from trainjob.spec.framework import FrameworkConfig

OPERATIONAL_ARGUMENTS = (
    *("save_total_limit", "save_on_each_node", "overwrite_cache", "overwrite_output_dir", "plot_loss"),
    *("logging_dir", "logging_first_step", "logging_steps", "logging_strategy", "logging_nan_inf_filter"),
    *("log_level", "log_level_replica", "log_on_each_node", "log_completions", "log_unique_prompts"),
    *("disable_tqdm", "report_to", "run_name", "project", "num_completions_to_print", "skip_memory_metrics"),
    *("include_num_input_tokens_seen", "include_effective_tokens_per_second", "debug", "print_param_status"),
    *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers"),
    *("dataloader_prefetch_factor", "dataloader_multiprocessing_context", "dataset_num_proc"),
    *("preprocessing_num_workers", "preprocessing_batch_size", "cache_dir", "low_cpu_mem_usage", "offload_folder"),
    *("ddp_backend", "ddp_broadcast_buffers", "ddp_bucket_cap_mb", "ddp_find_unused_parameters", "ddp_static_graph"),
    *("ddp_timeout", "torch_compile", "torch_compile_backend", "torch_compile_mode", "torch_empty_cache_steps"),
    *("gradient_checkpointing", "gradient_checkpointing_kwargs", "disable_gradient_checkpointing"),
    *("activation_checkpointing", "activation_checkpointing_kwargs", "activation_offloading", "use_reentrant_gc"),
    *("use_liger_kernel", "liger_kernel_config", "enable_liger_kernel", "flash_attn", "use_cache", "use_kv_cache"),
    *("vllm_gpu_memory_utilization", "vllm_enable_sleep_mode", "vllm_group_port", "vllm_tensor_parallel_size"),
    *("push_to_hub", "hub_always_push", "hub_model_id", "hub_private_repo", "hub_revision", "hub_strategy"),
)
"""Arguments of trainers that say how a training is computed, saved or logged."""
EVALUATION_ARGUMENTS = (
    *("do_eval", "eval_on_start", "eval_delay", "eval_accumulation_steps", "eval_do_concat_batches", "eval_packing"),
    *("eval_use_gather_object", "eval_on_each_dataset", "per_device_eval_batch_size", "batch_eval_metrics"),
    *("prediction_loss_only", "include_for_metrics", "compute_accuracy", "bf16_full_eval", "fp16_full_eval"),
    *("num_generations_eval",),
)
"""Arguments about the evaluation only."""


class PeftLoraConfig(Spec):
    """Base class of a framework's configuration of LoRA.

    The names are those of `peft.LoraConfig`, except that of the rank.

    Attributes:
        lora_rank: rank of the update; `r` of peft.
        lora_alpha: scale of the update.
        lora_dropout: probability of dropping an input of the update, 0-1.
        target_modules: names of the layers that LoRA applies to, or `all-linear`.
        modules_to_save: names of layers that are trained completely.
        use_dora: whether to learn the magnitudes of the weights, too.
        use_rslora: whether to scale by the square root of the rank (rank-stabilized LoRA).
        load_in_4bit: whether to keep the base model in 4 bits; requires a GPU and an image with bitsandbytes.
        load_in_8bit: whether to keep the base model in 8 bits; requires the same.
        merge: whether to save the merged model beside the adapter.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("r", "rank", "lora_r"), "lora_rank"),
        "alpha": "lora_alpha",
        "dropout": "lora_dropout",
        **dict.fromkeys(("lora_target", "lora_target_modules"), "target_modules"),
        "quantize_base": "load_in_4bit",
    }

    lora_rank: int | None = Field(default=None, ge=1)
    lora_alpha: int | None = Field(default=None, ge=1)
    lora_dropout: float | None = Field(default=None, ge=0, lt=1)
    target_modules: tuple[str, ...] | None = Field(default=None, min_length=1)
    modules_to_save: tuple[str, ...] | None = Field(default=None, min_length=1)
    use_dora: bool = False
    use_rslora: bool = False
    load_in_4bit: bool = False
    load_in_8bit: bool = False
    merge: bool = True

    @model_validator(mode="after")
    def _validate_bits(self) -> Self:
        if self.load_in_4bit and self.load_in_8bit:
            raise invalid_field("load_in_8bit", True, "give load_in_4bit or load_in_8bit, not both")
        return self


class TransformersConfig(FrameworkConfig):
    """Base class of the configuration of a framework on transformers' Trainer.

    Attributes:
        lora_learning_rates: learning rates for LoRA by method, if they are not the framework's default.
        method: method of the training.
        epochs: passes over the dataset; may be a fraction.
        max_steps: optimizer steps; if given, `epochs` does not count.
        batch_size: samples that a process computes at once.
        gradient_accumulation_steps: batches for each optimizer step.
        learning_rate: the optimizer's learning rate at its highest.
        lr_scheduler_type: schedule of the learning rate, such as `linear` or `cosine`.
        weight_decay: factor by which the optimizer reduces the weights in each step, times the learning rate.
        max_length: length in tokens to which a sample is cut.
        packing: whether several samples share a sequence.
        seed: random seed.
        eval_dataset_path: folder or file with the rows for evaluation, below `/workspace/dataset`.
        eval_strategy: when to evaluate; by default after each epoch if `eval_dataset_path` is given.
        eval_steps: optimizer steps between two evaluations, with the strategy `steps`.
        save_strategy: when to save a checkpoint from which a later attempt can resume.
        save_steps: optimizer steps between two checkpoints, with the strategy `steps`.
        peft_config: configuration of LoRA; by default all weights are trained.
        deepspeed: DeepSpeed's configuration; requires an image with deepspeed.
        columns: names of the dataset's columns by the method's names, such as `{"prompt": "question"}`.
        arguments: any other argument of the framework by its name.
    """

    field_aliases: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("num_train_epochs", "num_epochs"), "epochs"),
        **dict.fromkeys(("per_device_train_batch_size", "train_batch_size"), "batch_size"),
        "lr": "learning_rate",
        **dict.fromkeys(("max_seq_length", "cutoff_len"), "max_length"),
        **dict.fromkeys(("lora_rank", "lora_r"), "peft_config.lora_rank"),
        **dict.fromkeys(("lora", "lora_config", "use_peft"), "peft_config"),
        **dict.fromkeys(("bf16", "fp16", "dtype"), "precision"),
        **dict.fromkeys(("gpus", "num_gpus", "resources"), "resources_per_node"),
        "stage": "method",
    }
    lora_learning_rates: ClassVar[Mapping[str, float]] = {}
    renamed_arguments: ClassVar[Mapping[str, str]] = {
        "epochs": "num_train_epochs",
        "batch_size": "per_device_train_batch_size",
    }
    """Names of the framework's arguments that fields give, if they differ from the fields' names."""
    converted_fields: ClassVar[tuple[str, ...]] = ()
    """Fields with the name of an argument that gets another value than the field's."""
    operational_fields: ClassVar[tuple[str, ...]] = (
        *FrameworkConfig.operational_fields,
        *("save_strategy", "save_steps"),
        *(f"arguments.{name}" for name in OPERATIONAL_ARGUMENTS),
    )
    # More steps are a longer training: it continues with the schedule of its new length.
    continued_fields: ClassVar[tuple[str, ...]] = (
        *("epochs", "max_steps", "eval_dataset_path", "eval_strategy", "eval_steps", "peft_config.merge"),
        *(f"arguments.{name}" for name in EVALUATION_ARGUMENTS),
    )
    step_fields: ClassVar[tuple[str, ...]] = ("model_path", "dataset_path")

    method: str
    epochs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_steps: int | None = Field(default=None, ge=1)
    batch_size: int | None = Field(default=None, ge=1)
    gradient_accumulation_steps: int | None = Field(default=None, ge=1)
    learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    lr_scheduler_type: str | None = None
    weight_decay: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_length: int | None = Field(default=None, ge=1)
    packing: bool | None = None
    seed: int | None = Field(default=None, ge=0)
    eval_dataset_path: str | None = None
    eval_strategy: Literal["steps", "epoch"] | None = None
    eval_steps: int | None = Field(default=None, ge=1)
    save_strategy: Literal["no", "steps", "epoch"] | None = None
    save_steps: int | None = Field(default=None, ge=1)
    peft_config: PeftLoraConfig | None = None
    deepspeed: Annotated[Mapping[str, Any], AfterValidator(to_json_value)] | None = None
    columns: ColumnNames = Field(default_factory=dict)
    arguments: Annotated[Mapping[str, Any], AfterValidator(to_json_value)] = Field(default_factory=dict)

    @classmethod
    def list_arguments(cls) -> Collection[str]:
        """Return the names of the framework's own arguments."""
        return ()

    @classmethod
    @functools.cache
    def list_field_arguments(cls) -> Mapping[str, str]:
        """Return the names of the framework's arguments that fields give, by field.

        A field gives the argument of its own name, or of its name in `renamed_arguments`.
        """
        known = cls.list_arguments()
        names = {field: cls.renamed_arguments.get(field, field) for field in cls.model_fields}
        return {field: name for field, name in names.items() if name in known and field not in cls.converted_fields}

    def get_given_arguments(self) -> dict[str, Any]:
        """Return the framework's arguments that fields give unchanged, by name."""
        given = {name: getattr(self, field) for field, name in self.list_field_arguments().items()}
        given["learning_rate"] = given["learning_rate"] or self.default_learning_rate
        given["eval_strategy"] = self.eval_strategy or ("epoch" if self.eval_dataset_path else None)
        return {name: value for name, value in given.items() if value is not None}

    @classmethod
    def find_field(cls, name: str) -> str:
        """Return the path of the field that another name means; empty if there is none."""
        return super().find_field(name) or (f"arguments.{name}" if name in cls.list_arguments() else "")

    @property
    def default_learning_rate(self) -> float | None:
        """Learning rate of a request without one; None means the framework's default."""
        return self.lora_learning_rates.get(self.method) if self.peft_config else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about defaults that differ from the framework's, for the log of a submission."""
        if self.learning_rate is not None or self.default_learning_rate is None:
            return ()
        rule = "the usual one for LoRA, because config.learning_rate is not given"
        return (f"the learning rate is {self.default_learning_rate:g}, {rule}",)

    @property
    def samples_per_step(self) -> int | None:
        """Samples of each optimizer step, in all processes together."""
        # The defaults are those of transformers' Trainer (transformers 5.23, training_args.py).
        batch = (self.batch_size or 8) * (self.gradient_accumulation_steps or 1)
        return batch * (self.max_nodes or 1) * self.processes_per_node

    def allows_nodes(self, count: int) -> bool:
        """Return whether the samples of a step can stay the same with a number of nodes."""
        return (self.gradient_accumulation_steps or 1) * (self.max_nodes or 1) % count == 0

    def with_nodes(self, count: int) -> Self:
        """Return the same training on a number of nodes, with as many samples in each step."""
        steps = (self.gradient_accumulation_steps or 1) * (self.max_nodes or 1) // count
        given = {"gradient_accumulation_steps": steps} if count != self.max_nodes else {}
        return super().with_nodes(count).model_copy(update=given)

    @property
    def saves_checkpoints(self) -> bool:
        """Return whether the training saves checkpoints with the optimizer's state."""
        return self.save_strategy != "no" and not self.arguments.get("save_only_model")

    @field_validator("eval_dataset_path")
    @classmethod
    def _validate_eval_dataset_path(cls, path: str | None) -> str | None:
        return validate_relative_path(path)


def omit_unset(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of LoRA without those that are not set: None, and False of a flag."""
    return {name: value for name, value in values.items() if value is not None and value is not False}


def validate_relative_path(path: str | None) -> str | None:
    """Return a path below a folder of the workspace without slashes around it.

    Raises:
        InvalidSpec: the path is absolute, empty or leads out of the folder.
    """
    if path is None:
        return None
    if path.startswith("/") or ".." in path.split("/") or not path.strip("/"):
        raise invalid_field("", path, "it must be a relative path without '..'")
    return path.strip("/")


def find_conflicts(config: TransformersConfig) -> Iterator[Problem]:
    """Yield the fields of any framework that are not allowed together."""
    if config.eval_strategy and not config.eval_dataset_path:
        yield Problem("eval_strategy", repr(config.eval_strategy), "give eval_dataset_path, too")
    if config.eval_steps and config.eval_strategy != "steps":
        yield Problem("eval_steps", str(config.eval_steps), "give eval_strategy='steps', too")
    if config.save_steps and config.save_strategy not in (None, "steps"):
        yield Problem("save_steps", str(config.save_steps), "it is allowed only with save_strategy='steps'")
    if config.arguments.get("save_total_limit") == 1:
        rule = "give at least 2: with 1, a kill during a save would leave no complete checkpoint"
        yield Problem("arguments.save_total_limit", "1", rule)


def find_quantization_on_cpu(config: TransformersConfig, lora: PeftLoraConfig | None) -> Iterator[Problem]:
    """Yield the quantization of a training that is explicitly on a CPU."""
    if config.arguments.get("use_cpu") is True and lora and (lora.load_in_4bit or lora.load_in_8bit):
        name = "load_in_4bit" if lora.load_in_4bit else "load_in_8bit"
        yield Problem(f"peft_config.{name}", "True", "it requires a GPU, but arguments has use_cpu")
