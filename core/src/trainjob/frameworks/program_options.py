"""Options of the programs in pods that train from a workspace: files of the step, and columns of the dataset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.frameworks.transformers_config import TransformersConfig
from trainjob.spec import FineTune
from trainjob.spec.trainers import escape_expansion
from trainjob.spec.volumes import WORKSPACE

DEFAULT_ARGUMENTS: Mapping[str, Any] = {
    # A checkpoint has the optimizer's state and may be several times as large as the model. With two, a complete one
    # exists while another is being saved.
    "save_total_limit": 2,
    # Otherwise the log has the loss 0 for NaN (transformers 5.23, trainer.py).
    "logging_nan_inf_filter": False,
}
"""Arguments of transformers' Trainer with another default than its own."""


def build_file_options(step: FineTune, config: TransformersConfig, run: str) -> dict[str, str]:
    """Return the options that name the run and its files, by option; a value may be empty.

    Args:
        step: a step with a workspace.
        config: the step's configuration.
        run: owner of the checkpoints, the same text in all attempts; empty disables resuming.
    """
    return {
        "--run": run,
        "--model-name": step.model,
        "--model": f"{WORKSPACE}/{step.model_path}",
        "--dataset": f"{WORKSPACE}/dataset/{step.dataset_path}".rstrip("/"),
        "--eval-dataset": f"{WORKSPACE}/dataset/{config.eval_dataset_path}" if config.eval_dataset_path else "",
        "--output": f"{WORKSPACE}/output/{step.output_path}".rstrip("/"),
    }


def build_column_option(config: TransformersConfig) -> dict[str, str]:
    """Return the option with the dataset's columns; its value is empty without any."""
    return {"--columns": json.dumps(dict(config.columns), sort_keys=True) if config.columns else ""}


def list_flags(config: TransformersConfig) -> list[str]:
    """Return the options without a value."""
    flags = {
        "--merge": config.peft_config is not None and config.peft_config.merge,
        "--keep-checkpoints": "save_total_limit" in config.arguments,
    }
    return [flag for flag, is_set in flags.items() if is_set]


def to_words(options: Mapping[str, str]) -> Iterator[str]:
    """Yield the words of those options that have a value."""
    for option, value in options.items():
        if value:
            yield from (option, escape_expansion(value))
