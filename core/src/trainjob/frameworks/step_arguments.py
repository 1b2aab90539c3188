"""Arguments of transformers' Trainer that a step sets itself, with the field to use instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.errors import Problem
from trainjob.spec.base import invalid_field

_HUB_ARGUMENTS = (
    "push_to_hub",
    "hub_always_push",
    "hub_model_id",
    "hub_private_repo",
    "hub_revision",
    "hub_strategy",
    "hub_token",
)
STEP_ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(_HUB_ARGUMENTS, "use a step ExportModel with the destination hf://ORGANIZATION/NAME"),
    "bf16": "give precision",
    "disable_tqdm": "progress is reported as lines of the log",
    "enable_jit_checkpoint": "after SIGTERM a checkpoint is saved, unless resume=False",
    "fp16": "give precision",
    "local_rank": "torchrun sets it",
    "model_name_or_path": "give model_path",
    "model_revision": "give the revision to InitializeModel",
    "output_dir": "give output_path",
    "resume_from_checkpoint": "the last complete checkpoint is resumed, unless resume=False",
}
"""Arguments that all frameworks have, with what to do instead."""


def find_managed_arguments(
    arguments: Mapping[str, Any],
    advice: Mapping[str, str],
    fields: Mapping[str, str],
    lora_fields: Mapping[str, str],
    lora_class: str,
) -> Iterator[Problem]:
    """Yield a problem for each given argument that a field or the step sets.

    Args:
        arguments: the given arguments by name.
        advice: what to do instead of an argument that a step sets, by its name.
        fields: names of the arguments that the configuration's fields set, by field.
        lora_fields: the same for the fields of LoRA.
        lora_class: name of the class with the fields of LoRA.
    """
    rules: dict[str, str] = {}
    for field, name in lora_fields.items():
        rules.setdefault(name, f"give peft_config={lora_class}({field}=...)")
    rules |= {name: f"give {field}" for field, name in fields.items()}
    rules |= advice
    for name, value in arguments.items():
        if name in rules:
            yield from invalid_field(f"arguments.{name}", value, rules[name]).problems
