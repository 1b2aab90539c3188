"""Conversion of a TRL configuration to the words of a container's command line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.frameworks.program_options import (
    DEFAULT_ARGUMENTS,
    build_column_option,
    build_file_options,
    list_flags,
    to_words,
)
from trainjob.frameworks.trl.config import TRLConfig
from trainjob.function_source import pack_function
from trainjob.spec import FineTune
from trainjob.spec.trainers import escape_expansion
from trainjob.spec.volumes import WORKSPACE

_FLAGS = ("fsdp",)  # without a value it is true; the text true is refused (transformers 5.23, training_args.py)


def build_program_arguments(step: FineTune, config: TRLConfig, run: str) -> list[str]:
    """Return the arguments of the program in the pod.

    They are the step's files, then the method, then TRL's own arguments.

    Args:
        step: a step with a workspace.
        config: the step's configuration.
        run: owner of the checkpoints, the same text in all attempts; empty disables resuming.

    Raises:
        InvalidSpec: a reward function cannot be sent.
    """
    options = {
        **build_file_options(step, config, run),
        "--teacher": f"{WORKSPACE}/{config.teacher_path}" if config.teacher_path else "",
        **build_column_option(config),
        "--trl-version": config.trl_version,
        "--index-url": config.pip_index_url or "",
        "--wheels": f"{WORKSPACE}/{config.wheels_path}" if config.wheels_path else "",
    }
    words = [*to_words(options), *list_flags(config)]
    for function in config.reward_functions:
        packed = function if isinstance(function, str) else pack_function(function, field="config.reward_functions")
        words += ["--reward", packed]
    values = {**DEFAULT_ARGUMENTS, **config.to_arguments()}
    return [*words, config.method, *_to_arguments(values)]


def _to_arguments(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield arguments of a TRL script.

    A value is in the same word as its name, so that it may start with `-`. Items of a list follow as words.
    """
    for name, value in values.items():
        if name in _FLAGS:
            yield f"--{name}"
        elif isinstance(value, list | tuple):
            yield f"--{name}"
            yield from (escape_expansion(_to_text(item)) for item in value)
        else:
            yield f"--{name}={escape_expansion(_to_text(value))}"


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, sort_keys=True)
