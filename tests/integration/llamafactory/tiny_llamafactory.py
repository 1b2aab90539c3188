"""Configurations of LLaMA-Factory that train the demo's tiny model on a CPU."""

from __future__ import annotations

from typing import Any

from trainjob import LLaMAFactoryConfig

TICKETS = {"prompt": "input", "completion": "output"}
METHOD_FIELDS: dict[str, dict[str, Any]] = {
    "pt": {"columns": {"text": "input"}},
    "sft": {"columns": TICKETS},
    "dpo": {},
    "kto": {"columns": TICKETS},
}
"""Fields that each method needs for the tickets."""
DATASETS = {"dpo": "pairs", "kto": "judged"}
"""Folder of the dataset of each method, unless it is `data`."""


def tiny_config(method: str = "sft", **fields: Any) -> LLaMAFactoryConfig:
    """Return a configuration with which the tiny model learns in a few steps on a CPU."""
    given = {"batch_size": 8, "learning_rate": 3e-3, "seed": 7, **METHOD_FIELDS[method]}
    arguments = {"logging_steps": 2, **fields.pop("arguments", {})}
    return LLaMAFactoryConfig(method=method, **{**given, **fields}, arguments=arguments)
