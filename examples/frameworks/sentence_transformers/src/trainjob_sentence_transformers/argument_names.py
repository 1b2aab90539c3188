"""Arguments of the trainer with their types, and those that a step sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.frameworks.step_arguments import STEP_ARGUMENTS

VERSIONS = ("6.2.0",)
"""Versions of sentence-transformers whose arguments are known; the last one is the default."""
PRECISION_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {"bf16": {"bf16": True}, "fp16": {"fp16": True}, "fp32": {}}
"""Arguments for each value of `precision`."""
ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(("num_train_epochs", "learning_rate", "warmup_steps", "eval_steps", "save_steps"), "float"),
    **dict.fromkeys(("max_steps", "per_device_train_batch_size", "gradient_accumulation_steps", "seed"), "int"),
    **dict.fromkeys(("lr_scheduler_type", "eval_strategy", "save_strategy"), "str"),
    **dict.fromkeys(("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "weight_decay"), "float"),
    **dict.fromkeys(("optim", "optim_args"), "str"),
    **dict.fromkeys(("lr_scheduler_kwargs", "learning_rate_mapping", "gradient_checkpointing_kwargs"), "object"),
    "batch_sampler": "str: batch_sampler|no_duplicates|no_duplicates_hashed",
    "prompts": "object",
    **dict.fromkeys(("logging_first_step", "logging_nan_inf_filter", "skip_memory_metrics"), "bool"),
    "logging_steps": "float",
    "logging_strategy": "str: steps|epoch|no",
    "save_total_limit": "int",
    "save_only_model": "bool",
    "per_device_eval_batch_size": "int",
    "eval_accumulation_steps": "int",
    "eval_delay": "float",
    **dict.fromkeys(("eval_on_start", "bf16_full_eval", "fp16_full_eval"), "bool"),
    **dict.fromkeys(("load_best_model_at_end", "greater_is_better"), "bool"),
    "metric_for_best_model": "str",
    **dict.fromkeys(("gradient_checkpointing", "full_determinism", "tf32", "torch_compile", "use_cpu"), "bool"),
    **dict.fromkeys(("torch_compile_backend", "torch_compile_mode"), "str"),
    **dict.fromkeys(("data_seed", "dataloader_num_workers", "dataloader_prefetch_factor"), "int"),
    **dict.fromkeys(("dataloader_drop_last", "dataloader_pin_memory", "dataloader_persistent_workers"), "bool"),
    **dict.fromkeys(("ddp_find_unused_parameters", "ddp_static_graph"), "bool"),
    **dict.fromkeys(("ddp_bucket_cap_mb", "ddp_timeout", "torch_empty_cache_steps"), "int"),
    "ddp_backend": "str",
}
"""Type of each argument by its name; `trainjob.frameworks.argument_checks` describes the types."""
ADVICE: Mapping[str, str] = {
    **STEP_ARGUMENTS,
    **dict.fromkeys(("deepspeed", "fsdp", "fsdp_config"), "each process trains a copy of the model (DDP)"),
    **dict.fromkeys(("multi_dataset_batch_sampler", "router_mapping"), "a step has one dataset and one encoder"),
    "max_seq_length": "give max_length",
    "report_to": "give tracking to the step",
    "warmup_ratio": "give warmup_steps: a number below 1 is a part of all steps",
}
"""Advice for each argument that a step sets, or that this framework does not have."""
