"""Configurations of TRL that train the demo's tiny model on a CPU."""

from __future__ import annotations

from typing import Any

from trainjob import TRLConfig

TICKET_COLUMNS = {"prompt": "input", "completion": "output"}
PAIRS = {"dataset_path": "pairs"}


def length_reward(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text)) for text in completions]


ONLINE = {
    "columns": {"prompt": "input"},
    "reward_functions": (length_reward,),
    "arguments": {"num_generations": 4, "max_completion_length": 8},
}
METHOD_FIELDS: dict[str, dict[str, Any]] = {
    "sft": {"columns": TICKET_COLUMNS},
    "dpo": {},
    "kto": {},
    "reward": {},
    "grpo": ONLINE,
    "rloo": ONLINE,
    "distillation": {
        "columns": {"prompt": "input"},
        "teacher_path": "model",
        "arguments": {"max_completion_length": 8},
    },
}
"""Fields that each method needs for the tickets."""
STEP_FIELDS: dict[str, dict[str, Any]] = {"dpo": PAIRS, "kto": PAIRS, "reward": PAIRS}
"""Fields of the step for methods that read pairs of answers."""


def tiny_config(method: str = "sft", **fields: Any) -> TRLConfig:
    """Return a configuration with which the tiny model learns in a few steps on a CPU."""
    given = {"precision": "fp32", "batch_size": 8, "learning_rate": 3e-3, "seed": 7, **METHOD_FIELDS[method]}
    arguments = {"logging_steps": 2, **given.pop("arguments", {}), **fields.pop("arguments", {})}
    return TRLConfig(method=method, **{**given, **fields}, arguments=arguments)
