"""Kubernetes quantities: `500m`, `2`, `20Gi`, `1e3`.

Source: k8s.io/apimachinery 0.36 `pkg/api/resource/quantity.go`.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, ROUND_UP, Decimal
from functools import lru_cache

__all__ = ["canonicalize", "parse_quantity", "round_up"]

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
    """Parse a quantity without rounding.

    Raises:
        ValueError: the text is not a quantity.
    """
    found = _SHAPE.fullmatch(str(value))
    if found is None:
        raise ValueError(f"{value!r} is not a Kubernetes quantity")
    return Decimal(found[1]) * _UNITS[found[2]]


def round_up(value: str | float) -> int:
    """Return a quantity as an integer, rounded up like `Quantity.Value()`.

    Raises:
        ValueError: the text is not a quantity.
    """
    return int(parse_quantity(value).to_integral_value(rounding=ROUND_CEILING))


@lru_cache(maxsize=1024)
def canonicalize(value: str | float) -> str:
    """Return a quantity in the form in which Kubernetes stores it.

    For example, `0.5` becomes `500m`, `1024Mi` becomes `1Gi`, and `1000` becomes `1k`.

    Raises:
        ValueError: the text is not a quantity.
    """
    amount, unit = parse_quantity(value), str(value).lstrip("+-.0123456789")
    if unit.endswith("i") and abs(amount) >= 1024 and amount == int(amount):
        factor, power = int(amount), 0
        while factor % 1024 == 0 and power < len(_BINARY):
            factor, power = factor // 1024, power + 1
        return f"{factor}{['', *_BINARY][power]}"
    scientific = unit[:1] in ("e", "E") and len(unit) > 1
    factor, exponent = int((amount * 10**9).to_integral_value(rounding=ROUND_UP)), -9
    while factor and factor % 1000 == 0 and (scientific or exponent < 18):
        factor, exponent = factor // 1000, exponent + 3
    if factor == 0:
        return "0"
    if scientific:
        return f"{factor}e{exponent}" if exponent else str(factor)
    return f"{factor}{list(_DECIMAL)[exponent // 3 + 3]}"
