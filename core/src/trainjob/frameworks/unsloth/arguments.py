"""Conversion of an Unsloth configuration to the words of a container's command line."""

from __future__ import annotations

import json

from trainjob.frameworks.program_options import (
    DEFAULT_ARGUMENTS,
    build_column_option,
    build_file_options,
    list_flags,
    to_words,
)
from trainjob.frameworks.unsloth.config import UnslothConfig
from trainjob.spec import FineTune


def build_program_arguments(step: FineTune, config: UnslothConfig, run: str) -> list[str]:
    """Return the arguments of the program in the pod.

    They are the step's files, then three JSON objects with the arguments of the model, of LoRA and of TRL's trainer,
    then the method.

    Args:
        step: a step with a workspace.
        config: the step's configuration.
        run: owner of the checkpoints, the same text in all attempts; empty disables resuming.
    """
    lora = config.to_lora_arguments()
    options = {
        **build_file_options(step, config, run),
        **build_column_option(config),
        "--unsloth-version": config.unsloth_version,
        "--model-arguments": json.dumps(config.to_model_arguments(), sort_keys=True),
        "--lora-arguments": "" if lora is None else json.dumps(lora, sort_keys=True),
        "--arguments": json.dumps({**DEFAULT_ARGUMENTS, **config.to_arguments()}, sort_keys=True),
    }
    return [*to_words(options), *list_flags(config), config.method]
