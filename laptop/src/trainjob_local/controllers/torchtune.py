"""The TorchTune recipe and configuration that the Trainer selects; pure functions.

Source: Trainer 2.3 `pkg/runtime/framework/plugins/torch/torchtune.go`, `pkg/constants/constants.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "ENTRYPOINT",
    "IMMUTABLE_OVERRIDES",
    "MULTI_NODE_MODEL",
    "QWEN_MODEL",
    "SUPPORTED_MODELS",
    "Scale",
    "immutable_overrides",
    "is_lora",
    "is_qlora",
    "parse_model",
    "select_recipe",
]

ENTRYPOINT = ["tune", "run"]
"""The only command of a TrainJob that makes the Trainer add recipe and configuration."""

IMMUTABLE_OVERRIDES = ("output_dir", "tokenizer.path", "checkpointer.checkpoint_dir", "tokenizer.merges_file")
"""Overrides that the Trainer copies from the runtime's command.

The Trainer rejects them in a TrainJob's arguments.
"""

MULTI_NODE_MODEL, QWEN_MODEL = "llama3_3/70B", "qwen2_5/1.5B"
SUPPORTED_MODELS = ("llama3_2/1B", "llama3_2/3B", MULTI_NODE_MODEL, QWEN_MODEL)


@dataclass(frozen=True)
class Scale:
    """The number of nodes, processes and GPUs of a TrainJob.

    Attributes:
        nodes: number of nodes.
        processes: processes per node, or None for `auto`.
        gpus: GPUs per node.
    """

    nodes: int
    processes: int | None
    gpus: int

    @property
    def is_single_device(self) -> bool:
        """Whether the TrainJob uses one process or one GPU on one node."""
        return self.nodes == 1 and (self.processes == 1 or self.gpus == 1)

    @property
    def needs_rendezvous(self) -> bool:
        """Whether several processes run, which need a rendezvous endpoint."""
        return self.nodes > 1 or (self.processes > 1 if self.processes is not None else self.gpus > 1)


def parse_model(runtime: str) -> str:
    """Return the model in a runtime's name: `llama3_2/1B` for `torchtune-llama3.2-1b`.

    The result is empty if the name does not have three fields separated by `-`.
    """
    fields = runtime.split("-")
    return f"{fields[1].replace('.', '_')}/{fields[2].upper()}" if len(fields) == 3 else ""


def is_lora(args: Sequence[str]) -> bool:
    """Return whether the arguments select LoRA, by naming the attention modules."""
    return any("model.lora_attn_modules" in arg for arg in args)


def is_qlora(args: Sequence[str]) -> bool:
    """Return whether the arguments select QLoRA: a quantized base model without DoRA."""
    return not _enabled(args, "model.use_dora") and _enabled(args, "model.quantize_base")


def select_recipe(runtime: str, scale: Scale, args: Sequence[str]) -> tuple[str, str]:
    """Return the names of the recipe and the configuration."""
    kind = "qlora" if is_qlora(args) else "lora" if is_lora(args) else "full"
    recipe = "full_finetune" if kind == "full" else "lora_finetune"
    if scale.is_single_device:
        return f"{recipe}_single_device", f"{parse_model(runtime)}_{kind}_single_device"
    if scale.nodes > 1:
        return "full_finetune_distributed", f"{parse_model(runtime)}_full_multinode"
    if scale.nodes == 1:
        return f"{recipe}_distributed", f"{parse_model(runtime)}_{kind}"
    return "full_finetune_distributed", f"{parse_model(runtime)}_full"


def immutable_overrides(command: Sequence[str]) -> list[str]:
    """Return the overrides in the runtime's own command that the Trainer retains."""
    return [part for part in command if part.split("=")[0] in IMMUTABLE_OVERRIDES]


def _enabled(args: Sequence[str], name: str) -> bool:
    pairs = (arg.partition("=") for arg in args)
    return any(found and name in key and value.strip().lower() == "true" for key, found, value in pairs)
