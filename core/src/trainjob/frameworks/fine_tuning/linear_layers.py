"""Layers that LoRA applies to in place of `all-linear`, for models of which peft cannot adapt every linear layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["list_linear_layers"]

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_MLP = ("gate_proj", "up_proj", "down_proj")
_MAMBA = ("in_proj", "x_proj")
# transformers 5.23, models/*/modeling_*.py, and peft 0.21.2, tuners/tuners_utils.py. Left out are
# - layers whose weights the model reads itself, so that it does not see their update: in mixers of Mamba, and routers;
# - layers that return two values, or multiply groups of their inputs;
# - shared experts of Laguna, whose names peft changes twice when it loads an adapter.
_LAYERS: Mapping[str, tuple[str, ...]] = {
    "llama4": (*_ATTENTION, *_MLP),
    "llama4_text": (*_ATTENTION, *_MLP),
    "phimoe": _ATTENTION,
    "deepseek_v4": ("q_a_proj", "q_b_proj", "kv_proj", "o_b_proj", *_MLP),
    "mamba": _MAMBA,
    "mamba2": ("in_proj",),
    "falcon_mamba": _MAMBA,
    "falcon_h1": ("in_proj", *_ATTENTION, *_MLP),
    "jamba": (*_MAMBA, "out_proj", *_ATTENTION, *_MLP),
    "laguna": (*_ATTENTION, "g_proj"),
    "longcat_flash": ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", *_MLP),
    "nemotron_h": ("in_proj", *_ATTENTION, "up_proj", "down_proj"),
}


def list_linear_layers(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return names of linear layers that peft can adapt; empty if it can adapt all of them.

    Args:
        config: content of the model's `config.json`.
    """
    return _LAYERS.get(str(config.get("model_type")), ())
