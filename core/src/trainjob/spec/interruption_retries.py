"""Budget of a step for interruptions by the infrastructure.

The budget belongs to the engine's task. It is not part of the request, so another budget adopts the same TrainJob.
"""

from __future__ import annotations

from typing import Any

from trainjob.errors import InvalidSpec, Problem

DEFAULT_INTERRUPTION_RETRIES = 3
"""How often a step starts another attempt after an interruption, unless the user sets another number."""


def parse_interruption_retries(value: Any) -> int:
    """Return a budget as an integer.

    A float without a fraction is accepted, because the input of KFP's executor (2.17) has numbers as floats.

    Raises:
        InvalidSpec: the value is not an integer, or is negative.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidSpec(Problem("interruption_retries", repr(value), "it must be an integer of at least 0"))
    return value
