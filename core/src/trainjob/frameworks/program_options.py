"""Options of the programs in pods that train from a workspace: files of the step, and columns of the dataset."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.frameworks.transformers_config import TransformersConfig
from trainjob.packing import program_command
from trainjob.spec import FineTune
from trainjob.spec.trainers import escape_expansion
from trainjob.spec.volumes import WORKSPACE

COPIER_DEPENDENCIES = (
    *("trainjob.frameworks.copier_process", "trainjob.frameworks.durable_files"),
    *("trainjob.programs.locked_library", "trainjob.programs.pip_installation"),
    *(f"trainjob.programs.fetch.{name}" for name in ("bucket", "connections", "credentials", "names", "progress")),
    "trainjob.programs.fetch.retries",
    *(f"trainjob.{name}" for name in ("addresses", "credentials", "errors", "job_variables")),
)
"""Names of the modules that the program which copies checkpoints imports, besides its own package."""
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
        "--checkpoint-uri": step.checkpoint_uri or "",
        "--copier": _build_copier(step),
    }


def _build_copier(step: FineTune) -> str:
    """Return the program that copies checkpoints, with its options, as a JSON list.

    The text is empty if none is copied. It is a word of its own, because one word with this program and the training's
    would be too long.
    """
    if step.checkpoint_uri is None:
        return ""
    _, *program = program_command("trainjob.frameworks.checkpoint_copies", *COPIER_DEPENDENCIES, source=step.program)
    return json.dumps([*program, *(["--endpoint", step.checkpoint_endpoint] if step.checkpoint_endpoint else [])])


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
