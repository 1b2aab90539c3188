"""Names, types and choices of the arguments that LLaMA-Factory accepts.

LLaMA-Factory refuses unknown names when torch is loaded, and does not check types (llamafactory 0.9.5,
hparams/parser.py: `HfArgumentParser.parse_dict`). Therefore, arguments are checked before a TrainJob is created.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

LLAMAFACTORY_VERSIONS = ("0.9.5",)
"""Versions of LLaMA-Factory with an argument table; the last one is the default."""


def get_arguments(version: str) -> Mapping[str, str]:
    """Return the type of each argument by its name.

    [trainjob.frameworks.argument_checks.find_problems][] describes the types.
    """
    arguments: Mapping[str, str] = _import_table(version).ARGUMENTS
    return arguments


def get_templates(version: str) -> tuple[str, ...]:
    """Return the names of the chat templates."""
    templates: tuple[str, ...] = _import_table(version).TEMPLATES
    return templates


def _import_table(version: str) -> Any:
    return importlib.import_module(f"trainjob.frameworks.llamafactory.argument_tables.v{version.replace('.', '_')}")
