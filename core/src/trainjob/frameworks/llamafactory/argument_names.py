"""Arguments of LLaMA-Factory that the fields of a configuration give, and those that a step sets itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainjob.frameworks.step_arguments import STEP_ARGUMENTS

LORA_ARGUMENTS: Mapping[str, str] = {
    "lora_rank": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "target_modules": "lora_target",
    "modules_to_save": "additional_target",
    "use_dora": "use_dora",
    "use_rslora": "use_rslora",
    "load_in_4bit": "quantization_bit",
    "load_in_8bit": "quantization_bit",
}
"""Arguments that the fields of `LLaMAFactoryLoraConfig` give, by field."""
LORA_LEARNING_RATES: Mapping[str, float] = {"pt": 1e-4, "sft": 1e-4}
"""Learning rates for LoRA by method, as in its examples/train_lora (llamafactory 0.9.5)."""
PRECISION_ARGUMENTS: Mapping[str, Mapping[str, Any]] = {"bf16": {"bf16": True}, "fp16": {"fp16": True}}
"""Arguments for each value of `precision`."""

_DATASET_ARGUMENTS = ("dataset", "dataset_dir", "eval_dataset", "media_dir", "val_size")
_DISTRIBUTED_ARGUMENTS = ("master_addr", "master_port", "ray_init_kwargs", "ray_num_workers")
ADVICE: Mapping[str, str] = {
    **STEP_ARGUMENTS,
    **dict.fromkeys(_DATASET_ARGUMENTS, "give dataset_path, and eval_dataset_path for evaluation"),
    **dict.fromkeys(("export_dir", "export_hub_model_id"), STEP_ARGUMENTS["push_to_hub"]),
    **dict.fromkeys(_DISTRIBUTED_ARGUMENTS, "torchrun starts the processes: give num_nodes and num_proc_per_node"),
    **dict.fromkeys(("hf_hub_token", "ms_hub_token", "om_hub_token"), "fetch model and dataset in steps before"),
    "adapter_name_or_path": "export the merged model of the earlier training, and give it as model_path",
    "do_predict": "use a step of its own for predictions",
    "do_train": "a fine-tune step always trains",
    "finetuning_type": "give peft_config for LoRA; without it, all weights are trained",
    "overwrite_output_dir": "a run that does not resume overwrites its output folder",
    "stage": "give method",
    "streaming": "the rows are files of the workspace",
    "tokenized_path": "each attempt tokenizes the rows",
}
"""Advice for each argument that a step sets, by its name."""
