"""Arguments of LoRA that depend on the model in the workspace."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trainjob.frameworks.fine_tuning.linear_layers import list_linear_layers

__all__ = ["choose_lora_arguments", "has_experts"]

# Names in the configurations of mixtures of experts (transformers 5.23, models/*/configuration_*.py).
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_routed_experts")


def has_experts(config: Mapping[str, Any]) -> bool:
    """Return whether a model is a mixture of experts.

    Args:
        config: content of the model's `config.json`; a multimodal model's has that of its text model inside.
    """
    text = config.get("text_config")
    parts = [config, text] if isinstance(text, Mapping) else [config]
    return any(part.get(name) for part in parts for name in _EXPERTS)


def choose_lora_arguments(
    config: Mapping[str, Any], given: Mapping[str, Any], known_types: Collection[str]
) -> Iterator[str]:
    """Yield arguments without which the training would fail.

    * peft chooses layers for the model types in its table only (peft 0.21.2, utils/constants.py). The layers of experts
      are not in the table.
    * peft cannot adapt every linear layer of some models, so that `all-linear` fails.
    * TRL's default dropout of 0.05 is refused for the weights of experts, which are no separate layers (peft 0.21.2,
      tuners/lora/layer.py, ParamWrapper).

    Args:
        config: content of the model's `config.json`.
        given: the given arguments by name.
        known_types: model types for which peft chooses the layers.
    """
    needs_all = has_experts(config) or config.get("model_type") not in known_types
    layers = given.get("lora_target_modules", ["all-linear"] if needs_all else None)
    if layers == ["all-linear"] and (possible := list_linear_layers(config)):
        # TRL passes one name to peft as a regular expression (trl 1.16, trainer/model_config.py).
        yield from ("--lora_target_modules", *(possible if len(possible) > 1 else [rf"(.*\.)?{possible[0]}"]))
    elif needs_all and "lora_target_modules" not in given:
        yield "--lora_target_modules=all-linear"
    if "lora_dropout" not in given and has_experts(config):
        yield "--lora_dropout=0.0"
