"""Arguments that depend on the type of the model in the workspace, and types that a method cannot train."""

from __future__ import annotations

from collections.abc import Collection, Iterator

__all__ = ["choose_model_arguments", "is_untrainable"]

# All types of text models in transformers 5.23 were tried with TRL 1.16 (tests/integration/trl/text_architectures.py).
# Their configurations lack a number that TRL's loss for the balance of experts reads (trl 1.16, trainer/utils.py).
_WITHOUT_BALANCE = (
    *("granitemoe", "granitemoe_swa", "granitemoehybrid", "granitemoeshared"),
    *("deepseek_v4", "doge", "flint", "phimoe"),
)
_WITHOUT_CHECKPOINTING = ("cpmant", "ctrl", "gpt_neox_japanese", "jetmoe", "openai-gpt", "xlm", "xlnet")
# TRL's loss multiplies the last hidden state by the weights of the head, which these types compute otherwise.
_UNTRAINABLE = {"sft": ("electra", "llama4_text", "rembert")}


def choose_model_arguments(model_type: str, method: str, given: Collection[str]) -> Iterator[str]:
    """Yield arguments without which the training of a model would fail.

    Args:
        model_type: `model_type` in the model's `config.json`.
        method: the method.
        given: names of the given arguments.
    """
    if method == "sft" and model_type in _WITHOUT_BALANCE and "router_aux_loss_coef" not in given:
        yield "--router_aux_loss_coef=0.0"
    if model_type in _WITHOUT_CHECKPOINTING and "gradient_checkpointing" not in given:
        yield "--gradient_checkpointing=false"


def is_untrainable(model_type: str, method: str) -> bool:
    """Return whether a method of TRL fails with a type of model.

    Args:
        model_type: `model_type` in the model's `config.json`.
        method: the method.
    """
    return model_type in _UNTRAINABLE.get(method, ())
