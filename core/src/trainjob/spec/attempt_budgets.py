"""Budgets of a step for further attempts: after interruptions, and after failures.

The budgets belong to the engine's task. They are not part of the request, so another budget adopts the same TrainJob.
"""

from __future__ import annotations

from typing import Any

from trainjob.errors import InvalidSpec, Problem

DEFAULT_INTERRUPTION_RETRIES = 3
"""How often a step starts another attempt after an interruption, unless the user sets another number."""


def parse_interruption_retries(value: Any) -> int:
    """Return the budget for interruptions as an integer.

    Raises:
        InvalidSpec: the value is not an integer, or is negative.
    """
    return _parse_integer("interruption_retries", value, minimum=0)


def parse_attempts(value: Any) -> int:
    """Return the number of attempts that may fail before the step fails.

    Raises:
        InvalidSpec: the value is not an integer of at least 1.
    """
    return _parse_integer("attempts", value, minimum=1)


def _parse_integer(field: str, value: Any, *, minimum: int) -> int:
    """Return a number as an integer.

    A float without a fraction is accepted, because the input of KFP's executor (2.17) has numbers as floats.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise InvalidSpec(Problem(field, repr(value), f"it must be an integer of at least {minimum}"))
    return value
