"""Names of the components' inputs for the fields of a step, in errors of the compilation and of the launcher."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob_kfp.input_values import FIELDS_OF_TEXTS

CONFIG_FIELDS = {
    "framework": "framework",
    "method": "method",
    "epochs": "epochs",
    "max_steps": "max_steps",
    "batch_size": "batch_size",
    "learning_rate": "learning_rate",
    "lora_rank": "peft_config.lora_rank",
    "eval_dataset_path": "eval_dataset_path",
    "arguments": "arguments",
}
"""Path of the field in the configuration of a fine-tuning, by the name of the input."""
_INPUTS = {"func": "function", "func_args": "function_args"}
# How Python and a pipeline write the same.
_WORDS = (
    (re.compile(r"resources_per_node=\{'gpu': (\d+)\}"), r"the task's set_accelerator_limit(\1)"),
    (re.compile(r"SecretKeyReference\(name='(\w+)', key='(\w+)'\)"), r"{'name': '\1', 'key': '\2'}"),
    (
        re.compile("or pass their values in func_args"),
        "pass their values in function_args, or send functions and classes with it: source(function, helper)",
    ),
    (re.compile(r"\bfunc_args\b"), "function_args"),
)


@contextlib.contextmanager
def add_problems(problems: Sequence[Problem]) -> Iterator[None]:
    """Raise one error with these problems and with those of the code inside.

    Raises:
        InvalidSpec: there are problems.
    """
    try:
        yield
    except InvalidSpec as error:
        raise InvalidSpec([*problems, *error.problems]) from None
    if problems:
        raise InvalidSpec(problems)


def name_inputs(error: InvalidSpec, arguments: Mapping[str, Any]) -> InvalidSpec:
    """Return the error of a step in the words of a pipeline's author.

    Args:
        error: the error; its paths are those of the step's fields.
        arguments: the given arguments of the component by name.
    """
    return InvalidSpec([_name_input(problem, arguments) for problem in error.problems], hint=_translate(error.hint))


def _name_input(problem: Problem, arguments: Mapping[str, Any]) -> Problem:
    field = problem.field.removeprefix("trainer.")
    paths = {**_INPUTS, **_name_config_fields(arguments), **_name_texts(arguments)}
    for path, name in paths.items():
        below = field.removeprefix(path)
        if field.startswith(path) and below[:1] in ("", ".", "["):
            field = f"{name}{below}"
            break
    return replace(problem, field=field, allowed=_translate(problem.allowed))


def _name_config_fields(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs by the paths of their fields, except those given in `config`."""
    in_config = arguments.get("config") or {}
    return {
        f"config.{path}": name
        for name, path in CONFIG_FIELDS.items()
        if arguments.get(name) or path.partition(".")[0] not in in_config
    }


def _name_texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the inputs that have a text, by the paths of the fields that it means."""
    only_texts = {
        f"{name}.{field}": name for name, field in FIELDS_OF_TEXTS.items() if [*arguments.get(name, {})] == [field]
    }
    return {**only_texts, "workspace.claim": "workspace", "workspace.sub_path": "workspace"}


def _translate(text: str) -> str:
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text
