"""Conversion of a configuration to the words of a container's command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainjob.frameworks.program_options import (
    DEFAULT_ARGUMENTS,
    build_column_option,
    build_file_options,
    list_flags,
    to_words,
)
from trainjob.spec import FineTune
from trainjob.spec.volumes import WORKSPACE
from trainjob_sentence_transformers.config import SentenceTransformersConfig

# Otherwise the log has a line after 500 steps only (transformers 5.23, training_args.py).
_DEFAULTS: Mapping[str, Any] = {**DEFAULT_ARGUMENTS, "logging_steps": 10}


def build_program_arguments(step: FineTune, config: SentenceTransformersConfig, run: str) -> list[str]:
    """Return the arguments of the program in the pod.

    Args:
        step: a step with a workspace.
        config: the step's configuration.
        run: owner of the checkpoints, the same text in all attempts; empty disables resuming.
    """
    loss = {"name": config.loss, "arguments": config.loss_arguments, "dimensions": config.matryoshka_dims}
    options = {
        **build_file_options(step, config, run),
        **build_column_option(config),
        "--library-version": config.sentence_transformers_version,
        "--index-url": config.pip_index_url or "",
        "--wheels": f"{WORKSPACE}/{config.wheels_path}" if config.wheels_path else "",
        "--loss": json.dumps(loss, sort_keys=True),
        "--max-length": str(config.max_length or ""),
        "--arguments": json.dumps({**_DEFAULTS, **config.to_arguments()}, sort_keys=True),
    }
    return [*to_words(options), *list_flags(config)]
