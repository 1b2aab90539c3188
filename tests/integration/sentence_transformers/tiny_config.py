"""Configurations that train the tiny encoder on a CPU in a few steps."""

from __future__ import annotations

from typing import Any


def tiny_config(loss: str = "MultipleNegativesRankingLoss", **fields: Any) -> dict[str, Any]:
    """Return a configuration as a dict, as a DAG or a file has it."""
    arguments = {"logging_steps": 2, **fields.pop("arguments", {})}
    usual = {"batch_size": 4, "learning_rate": 3e-3, "seed": 7, "max_length": 32}
    return {"framework": "sentence_transformers", "loss": loss, **usual, **fields, "arguments": arguments}
