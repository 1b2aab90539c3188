"""Conversion of a LLaMA-Factory configuration to the words of a container's command line."""

from __future__ import annotations

import json

from trainjob.frameworks.llamafactory.config import LLaMAFactoryConfig
from trainjob.frameworks.program_options import (
    DEFAULT_ARGUMENTS,
    build_column_option,
    build_file_options,
    list_flags,
    to_words,
)
from trainjob.spec import FineTune


def build_program_arguments(step: FineTune, config: LLaMAFactoryConfig, run: str) -> list[str]:
    """Return the arguments of the program in the pod.

    They are the step's files, then the method, then LLaMA-Factory's own arguments as JSON.

    Args:
        step: a step with a workspace.
        config: the step's configuration.
        run: owner of the checkpoints, the same text in all attempts; empty disables resuming.
    """
    values = {**DEFAULT_ARGUMENTS, **config.to_arguments()}
    options = {
        **build_file_options(step, config, run),
        **build_column_option(config),
        "--llamafactory-version": config.llamafactory_version,
        "--arguments": json.dumps(values, sort_keys=True),
    }
    return [*to_words(options), *list_flags(config), config.method]
