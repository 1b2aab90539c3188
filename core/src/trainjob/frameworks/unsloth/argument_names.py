"""Arguments of Unsloth and TRL that the fields of a configuration give, and those that a step sets itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.frameworks.step_arguments import STEP_ARGUMENTS

LORA_ARGUMENTS: Mapping[str, str] = {
    "lora_rank": "r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "target_modules",
    "modules_to_save": "modules_to_save",
    "use_dora": "use_dora",
    "use_rslora": "use_rslora",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
}
"""Arguments that the fields of `UnslothLoraConfig` give, by field; the last two are arguments of `from_pretrained`."""
LORA_LEARNING_RATES: Mapping[str, float] = {"sft": 2e-4}
"""Learning rates for LoRA by method, as in Unsloth's notebooks of 2026; others have the trainer's default."""
PRECISION_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "bf16": {"bf16": True, "fp16": False},
    "fp16": {"bf16": False, "fp16": True},
}
"""Arguments of TRL's trainers for each value of `precision`."""
DTYPES: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16"}
"""Data type of the model's weights for each value of `precision`; Unsloth refuses another combination."""
DDP_ADVICE = "with Unsloth, each process trains a copy of the model (DDP): use TRLConfig to shard the model"
"""Advice for settings that shard a model."""

_MEMORY_ARGUMENTS = ("gradient_checkpointing", "gradient_checkpointing_kwargs", "use_gradient_checkpointing")
_SHARDING_ARGUMENTS = ("deepspeed", "device_map", "fsdp", "fsdp_config", "parallelism_config")
ADVICE: Mapping[str, str] = {
    **STEP_ARGUMENTS,
    **dict.fromkeys(("dtype", "torch_dtype"), "give precision"),
    **dict.fromkeys(_MEMORY_ARGUMENTS, "give gradient_checkpointing"),
    **dict.fromkeys(_SHARDING_ARGUMENTS, DDP_ADVICE),
    **dict.fromkeys(("fast_inference", "gpu_memory_utilization", "max_lora_rank"), "no method uses vLLM"),
    **dict.fromkeys(("model_name", "model_init_kwargs"), "give model_path; other settings of the model are arguments"),
    "do_train": "a fine-tune step always trains",
    "full_finetuning": "give peft_config for LoRA; without it, all weights are trained",
    "load_in_16bit": "it is the default; for fewer bits give peft_config=UnslothLoraConfig(load_in_4bit=True)",
    "load_in_fp8": "give peft_config=UnslothLoraConfig(load_in_4bit=True) or load_in_8bit=True",
    "max_seq_length": "give max_length",
    "random_state": "give seed",
    "revision": "give the revision to InitializeModel",
    "token": "fetch model and dataset in steps before",
    "use_cpu": "Unsloth trains on GPUs only",
}
"""Advice for each argument that a step sets, by its name."""
