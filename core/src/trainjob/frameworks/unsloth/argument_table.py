"""Names, types and choices of the arguments that Unsloth and TRL's trainers accept.

Unsloth drops an argument that the installed TRL does not have, with a warning (unsloth 2026.10.9, models/rl.py:
`_unsloth_filter_config_init_kwargs`). Therefore, arguments are checked before a TrainJob is created, and in the pod.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

UNSLOTH_VERSIONS = ("2026.10.9",)
"""Versions of Unsloth with an argument table; the last one is the default."""


def get_arguments(version: str, method: str) -> Mapping[str, str]:
    """Return the type of each argument of a method by the argument's name.

    They are arguments of the model, of LoRA and of TRL's trainer for the method.
    [trainjob.frameworks.argument_checks.find_problems][] describes the types.
    """
    table = _import_table(version)
    return {**table.SHARED, **getattr(table, method.upper()), **table.LORA, **table.MODEL}


def get_model_arguments(version: str) -> Mapping[str, str]:
    """Return the arguments among them that load the model, with their types."""
    arguments: Mapping[str, str] = _import_table(version).MODEL
    return arguments


def get_lora_arguments(version: str) -> Mapping[str, str]:
    """Return the arguments among them that create the adapter, with their types."""
    arguments: Mapping[str, str] = _import_table(version).LORA
    return arguments


def describe_program(version: str, method: str) -> str:
    """Return the name of the program with the arguments, for errors."""
    return f"Unsloth {version} with TRL {_import_table(version).TRL_VERSION} {method}"


def _import_table(version: str) -> Any:
    return importlib.import_module(f"trainjob.frameworks.unsloth.argument_tables.v{version.replace('.', '_')}")
