"""Names, types and choices of the arguments that TRL's scripts accept.

TRL's scripts ignore arguments that they do not know (trl 1.16, scripts/sft.py: `fail_with_unknown_args=False`).
Therefore, arguments are checked before a TrainJob is created.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

from trainjob.errors import Problem
from trainjob.frameworks import argument_checks

TRL_VERSIONS = ("1.16.0",)
"""Versions of TRL with an argument table; the last one is the default."""
METHODS = ("sft", "dpo", "kto", "reward", "grpo", "rloo", "distillation")
"""Methods that TRL has a script for."""


def get_arguments(version: str, method: str) -> Mapping[str, str]:
    """Return the type of each argument of a method's script, by the argument's name.

    [trainjob.frameworks.argument_checks.find_problems][] describes the types.
    """
    module = importlib.import_module(f"trainjob.frameworks.trl.argument_tables.v{version.replace('.', '_')}")
    return {**module.SHARED, **getattr(module, method.upper())}


def find_problems(field: str, values: Mapping[str, Any], version: str, method: str) -> Iterator[Problem]:
    """Yield a problem for each value that the method's script does not accept.

    Args:
        field: path of the field that contains the values.
        values: values by the arguments' names.
        version: version of TRL.
        method: the method.
    """
    yield from argument_checks.find_problems(field, values, get_arguments(version, method), f"TRL {version} {method}")
