"""Configurations that train the demo's tiny model on a CPU."""

from __future__ import annotations

from typing import Any

from trainjob import LoraConfig, TorchTuneConfig

CPU = "device=cpu"
SHAPE = (
    "model.vocab_size=576",
    "model.num_layers=2",
    "model.num_heads=4",
    "model.num_kv_heads=2",
    "model.embed_dim=64",
    "model.intermediate_dim=128",
    "model.max_seq_len=2048",
    "tokenizer.special_tokens_path=/workspace/model/tokenizer.json",
)
TEACHER_SHAPE = (
    "teacher_model=torchtune.models.llama3_2.llama3_2",
    *(override.replace("model.", "teacher_model.", 1) for override in SHAPE if override.startswith("model.")),
)
METHODS = {"full": None, "lora": LoraConfig(lora_rank=16, lora_alpha=32)}


def tiny_config(*overrides: str, **config: Any) -> TorchTuneConfig:
    """Return a configuration with which the tiny model learns in a few steps on a CPU."""
    lora = config.get("peft_config")
    builder = "lora_llama3_2" if lora else "llama3_2"
    given = {"dtype": "fp32", "batch_size": 8, "learning_rate": 3e-3, "gradient_accumulation_steps": 1, **config}
    schedule = ("lr_scheduler.num_warmup_steps=5",) if lora else ()
    device = () if any(override.startswith("device=") for override in overrides) else (CPU,)
    ours = (*device, "optimizer=torch.optim.AdamW", f"model=torchtune.models.llama3_2.{builder}", *SHAPE, *schedule)
    return TorchTuneConfig(**given, overrides=(*ours, *overrides))
