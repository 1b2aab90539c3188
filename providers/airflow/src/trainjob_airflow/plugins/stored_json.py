"""JSON values from Airflow's database, read as data and checked, because tasks choose them.

Airflow's own readers of XComs are not used: they import and instantiate the class that a value names (Airflow 3.3,
`XComModel.deserialize_value`), and a custom XCom backend runs its own code. `xcom_objects` reads the objects of
Airflow's backend. The functions do no I/O.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from trainjob.status.usage import Usage

_TEXTS = ("phase", "reason", "tracking_url", "ranks")
_NUMBERS = ("percent", "step", "total", "epoch", "epochs", "loss")


def parse_stored(text: str) -> Any:
    """Return a JSON value that every response and every log can contain.

    Numbers that are not finite become None, and characters that UTF-8 cannot express become `?`.

    Raises:
        ValueError: the text is not JSON, is nested too deeply, or has a number of more than 4,300 digits.
    """
    try:
        value = json.loads(text, parse_constant=lambda _: None, parse_float=_to_finite)
        try:
            text.encode()
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def _to_finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def parse_xcom(text: str) -> dict[str, Any] | None:
    """Return the value of an XCom that is a dict; None if it is no dict or not readable here.

    Airflow stores a value as JSON, or as a string that has the JSON. The string of a custom XCom backend is a reference
    to the value.
    """
    try:
        value = parse_stored(text)
        value = parse_stored(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def parse_reference(text: str) -> str:
    """Return the string that an XCom backend has stored for a value; empty for a value."""
    try:
        value = parse_stored(text)
        if not isinstance(value, str):
            return ""
    except ValueError:
        return ""
    return "" if parse_xcom(text) is not None else value


def select_progress(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an XCom `progress` that have the right types."""
    selected = {name: value[name] for name in _TEXTS if isinstance(value.get(name), str)}
    selected |= {name: value[name] for name in _NUMBERS if name in value and is_number(value[name] or 0)}
    metrics = value.get("metrics")
    if isinstance(metrics, Mapping):
        selected["metrics"] = {name: number for name, number in metrics.items() if is_number(number)}
    with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError, OverflowError):  # none, or unusable
        selected["usage"] = Usage.from_dict(value["usage"]).to_dict()
    return selected


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number that the page can show."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
