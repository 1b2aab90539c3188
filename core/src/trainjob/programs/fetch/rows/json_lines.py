"""Rows as JSON Lines, without a change of any value.

`Dataset.to_json` is not used. It writes through pandas, which rounds floats to 10 digits, turns NaN into null and dates
into numbers (datasets 5.2, io/json.py; pandas 3.1).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any, BinaryIO

from trainjob.errors import FetchError

__all__ = ["contains_dates", "format_row", "is_representable", "write_rows"]

_BATCH = 1000  # rows
_NOT_IN_JSON = ("binary", "large_binary", "fixed_size_binary", "binary_view", "duration", "interval", "map")


def is_representable(kind: Any) -> bool:
    """Return whether JSON can hold the values of a type of Arrow; dates become texts."""
    import pyarrow

    if isinstance(kind, pyarrow.BaseExtensionType):
        return is_representable(kind.storage_type)
    if any(getattr(pyarrow.types, f"is_{name}")(kind) for name in _NOT_IN_JSON):
        return False
    return all(is_representable(kind.field(number).type) for number in range(kind.num_fields))


def contains_dates(kind: Any) -> bool:
    """Return whether values of a type of Arrow have dates or times, which become texts."""
    import pyarrow

    nested = (kind.field(number).type for number in range(kind.num_fields))
    return pyarrow.types.is_temporal(kind) or any(map(contains_dates, nested))


def format_row(row: Mapping[str, Any]) -> str:
    """Return a row as JSON on one line.

    Dates and times become texts in ISO 8601, and decimal numbers become texts.

    Raises:
        ValueError: a number is NaN or infinite, which JSON does not have.
        TypeError: a value has a type that JSON does not have.
    """
    return json.dumps(row, ensure_ascii=False, allow_nan=False, default=_to_text)


def write_rows(rows: Any, target: BinaryIO) -> None:
    """Write the rows of a `Dataset`, one on each line.

    Raises:
        FetchError: JSON does not have a value; the error names the row and the column.
    """
    numbers = itertools.count(1)
    for batch in rows.iter(batch_size=_BATCH):
        for values, number in zip(zip(*batch.values(), strict=True), numbers, strict=False):
            row = dict(zip(batch, values, strict=True))
            try:
                line = format_row(row)
            except (TypeError, ValueError) as error:
                raise _refuse_row(row, number) from error
            target.write(f"{line}\n".encode())


def _to_text(value: Any) -> str:
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError


def _refuse_row(row: Mapping[str, Any], number: int) -> FetchError:
    """Return the error for the first column whose value JSON does not have."""
    for name, value in row.items():
        try:
            format_row({name: value})
        except (TypeError, ValueError):
            what = "NaN or an infinite number" if _has_number_without_json(value) else type(value).__name__
            return FetchError(
                f"row {number}, column {name}: it has {what}, which JSON does not have",
                hint="remove the row or the column from the dataset, or omit the fields that prepare its rows",
            )
    raise AssertionError(number)


def _has_number_without_json(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    items: Iterable[Any] = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(map(_has_number_without_json, items))
