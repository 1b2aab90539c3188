"""Conversion of an Unsloth configuration to the words of a container's command line."""

from __future__ import annotations

import json

from trainjob.frameworks.program_options import DEFAULT_ARGUMENTS, build_column_option, build_file_options, to_words
from trainjob.frameworks.unsloth.config import UnslothConfig
from trainjob.spec import FineTune


def build_program_arguments(step: FineTune, config: UnslothConfig, run: str) -> list[str]:
    """Return the arguments of the program in the pod.

    They are the step's files, then three JSON objects with the arguments of the model, of LoRA and of TRL's trainer,
    then the method.

    Args:
        step: a step with a workspace.
        config: the step's configuration.
        run: identifier of the run, the same in all its attempts; empty disables resuming.
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
    merge = ["--merge"] if config.peft_config and config.peft_config.merge else []
    return [*to_words(options), *merge, config.method]
