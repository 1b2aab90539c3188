"""Conversion of a TRL configuration to the words of a container's command line."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.frameworks.trl.config import TRLConfig
from trainjob.function_source import extract_source
from trainjob.spec import FineTune
from trainjob.spec.trainers import escape_expansion
from trainjob.spec.volumes import WORKSPACE

# A checkpoint has the optimizer's state and may be several times as large as the model. With two, a complete one
# exists while another is being saved.
_KEPT_CHECKPOINTS = 2
_FLAGS = ("fsdp",)  # without a value it is true; the text true is refused (transformers 5.23, training_args.py)


def build_program_arguments(step: FineTune, config: TRLConfig, run: str) -> list[str]:
    """Return the arguments of the program in the pod.

    They are the step's files, then the method, then TRL's own arguments.

    Args:
        step: a step with a workspace.
        config: the step's configuration.
        run: identifier of the run, the same in all its attempts; empty disables resuming.

    Raises:
        InvalidSpec: a reward function cannot be sent.
    """
    options = {
        "--run": run,
        "--model-name": step.model,
        "--model": f"{WORKSPACE}/{step.model_path}",
        "--dataset": f"{WORKSPACE}/dataset/{step.dataset_path}".rstrip("/"),
        "--eval-dataset": f"{WORKSPACE}/dataset/{config.eval_dataset_path}" if config.eval_dataset_path else "",
        "--output": f"{WORKSPACE}/output/{step.output_path}".rstrip("/"),
        "--teacher": f"{WORKSPACE}/{config.teacher_path}" if config.teacher_path else "",
        "--columns": json.dumps(dict(config.columns), sort_keys=True) if config.columns else "",
        "--trl-version": config.trl_version,
        "--index-url": config.pip_index_url or "",
        "--wheels": f"{WORKSPACE}/{config.wheels_path}" if config.wheels_path else "",
    }
    words = [word for option, value in options.items() if value for word in (option, escape_expansion(value))]
    if config.peft_config and config.peft_config.merge:
        words.append("--merge")
    for function in config.reward_functions:
        words += ["--reward", function if isinstance(function, str) else _pack_function(function)]
    values = {"save_total_limit": _KEPT_CHECKPOINTS, **config.to_arguments()}
    return [*words, config.method, *_to_words(values)]


def _pack_function(function: Any) -> str:
    """Return a function as `NAME:SOURCE`.

    The source is base64, which no shell and no expansion of Kubernetes changes.
    """
    source, name = extract_source(function, field="config.reward_functions")
    return f"{name}:{base64.b64encode(source.encode()).decode()}"


def _to_words(values: Mapping[str, Any]) -> Iterator[str]:
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
