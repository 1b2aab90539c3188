"""Arguments of TRL that the fields of a configuration give, and those that a step sets itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.frameworks.step_arguments import STEP_ARGUMENTS

LORA_ARGUMENTS: Mapping[str, str] = {
    "lora_rank": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_target_modules",
    "modules_to_save": "lora_modules_to_save",
    "use_dora": "use_dora",
    "use_rslora": "use_rslora",
    "load_in_4bit": "load_in_4bit",
    "load_in_8bit": "load_in_8bit",
}
"""Arguments that the fields of `TRLLoraConfig` give, by field."""
LORA_LEARNING_RATES: Mapping[str, float] = {
    "sft": 2e-4,
    **dict.fromkeys(("dpo", "kto", "grpo", "rloo", "distillation"), 1e-5),
}
"""Learning rates for LoRA: ten times TRL's defaults, as its documentation advises (trl 1.16, peft_integration.md).

TRL's own default for `reward` is already one for LoRA.
"""
PRECISION_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "bf16": {"bf16": True},
    "fp16": {"bf16": False, "fp16": True},
    "fp32": {"bf16": False},
}
"""Arguments for each value of `precision`; without any, TRL uses bf16 (trl 1.16, trainer/base_config.py)."""

_DATASET_ARGUMENTS = (
    "dataset_name",
    "dataset_config",
    "dataset_train_split",
    "dataset_test_split",
    "dataset_streaming",
    "datasets",
    "streaming",
    "test_split_size",
)
ADVICE: Mapping[str, str] = {
    **STEP_ARGUMENTS,
    **dict.fromkeys(_DATASET_ARGUMENTS, "give dataset_path, and eval_dataset_path for evaluation"),
    "fsdp": "give fsdp=True; arguments may have fsdp_config",
    "lora_task_type": "the method determines it",
    "reward_funcs": "give reward_functions",
    "teacher_model_name_or_path": "give teacher_path",
    "teacher_model_revision": "give the revision to InitializeModel",
    "use_peft": "give peft_config",
    **dict.fromkeys(
        ("vllm_mode", "vllm_group_port", *(f"vllm_server_{name}" for name in ("base_url", "host", "port", "timeout"))),
        "vLLM runs in the training's own processes (colocate), without a server",
    ),
}
"""Advice for each argument that a step sets, by its name."""
