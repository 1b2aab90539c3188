"""Kubernetes quantities: `500m`, `2`, `20Gi`, `1e3`.

Source: k8s.io/apimachinery 0.36 `pkg/api/resource/quantity.go`.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

__all__ = ["parse_quantity", "whole"]

_BINARY = {unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)}
_DECIMAL = {
    "n": "1e-9",
    "u": "1e-6",
    "m": "1e-3",
    "": "1",
    "k": "1e3",
    "M": "1e6",
    "G": "1e9",
    "T": "1e12",
    "P": "1e15",
    "E": "1e18",
}
_UNITS = {**_BINARY, **{unit: Decimal(value) for unit, value in _DECIMAL.items()}}
_SHAPE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|)")


def parse_quantity(value: str | float) -> Decimal:
    """Reads a quantity exactly.

    Raises:
        ValueError: the text is no quantity.
    """
    found = _SHAPE.fullmatch(str(value))
    if found is None:
        raise ValueError(f"{value!r} is no Kubernetes quantity")
    return Decimal(found[1]) * _UNITS[found[2]]


def whole(value: str | float) -> int:
    """Reads a quantity as a whole number, rounded up, as `Quantity.Value()` does."""
    return int(parse_quantity(value).to_integral_value(rounding=ROUND_CEILING))
