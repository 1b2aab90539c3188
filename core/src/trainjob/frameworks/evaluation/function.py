"""Scores that a function of the user computes."""

from __future__ import annotations

import base64
import importlib
import math
import statistics
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainjob.credentials import redact_credentials
from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.evaluation.scores import Score

__all__ = ["parse_result", "run_function"]

_MODULE = "trainjob_function"


def run_function(packed: str, folder: Path) -> Any:
    """Return what the function returns for the path of a model.

    The source becomes a module of its own, so that a traceback shows its lines, and processes that it starts can import
    it.

    Args:
        packed: the function as `NAME:SOURCE`, with the source in base64.
        folder: folder of the model.

    Raises:
        RuntimeError: the function raised an error, whose traceback is on the standard error.
        OSError: the module cannot be written.
    """
    name, _, source = packed.partition(":")
    if _MODULE not in sys.modules:
        modules = Path(tempfile.mkdtemp(prefix="function-"))
        (modules / f"{_MODULE}.py").write_bytes(base64.b64decode(source))
        sys.path.insert(0, str(modules))
    try:
        return getattr(importlib.import_module(_MODULE), name)(str(folder))
    except Exception as error:  # noqa: BLE001 - the user's code may raise any
        print(redact_credentials(traceback.format_exc()), file=sys.stderr, flush=True)
        raise RuntimeError(f"the function {name} failed: {type(error).__name__}: {error}") from None


def parse_result(name: str, result: Any) -> tuple[dict[str, Score], list[Mapping[str, Any]]]:
    """Return the scores that a function returned, and the values of the rows.

    A larger value is a better one. Only a list has standard errors, and rows that can be compared.

    Args:
        name: name of the function.
        result: numbers by metric, or a list with such a mapping for each row.

    Raises:
        InvalidSpec: the function returned something else.
    """
    rows = [_parse_row(name, row) for row in (result if isinstance(result, list | tuple) else [result])]
    if not rows or any(row.keys() != rows[0].keys() for row in rows):
        raise _refuse(name, "each row of its list must have the same metrics, and it must have a row")
    if isinstance(result, Mapping):
        return {metric: Score(value, higher_is_better=True) for metric, value in rows[0].items()}, [rows[0]]
    return {metric: _build_score([row[metric] for row in rows]) for metric in rows[0]}, [*rows]


def _build_score(values: Sequence[float]) -> Score:
    mean = sum(values) / len(values)
    if not math.isfinite(mean):
        return Score(math.nan, higher_is_better=True)
    stderr = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return Score(mean, stderr, higher_is_better=True, rows={str(row): value for row, value in enumerate(values)})


def _parse_row(name: str, row: Any) -> dict[str, float]:
    if not isinstance(row, Mapping) or not row:
        raise _refuse(name, f"it must return numbers by metric, or a list of them, and not a {type(row).__name__}")
    found = {}
    for metric, value in row.items():
        if not isinstance(metric, str) or not metric or "/" in metric:
            raise _refuse(name, f"the name of a metric must be a text without /, and not {metric!r}")
        try:
            found[metric] = float(value if not isinstance(value, str) else "text")  # also numbers of numpy and torch
        except (TypeError, ValueError):
            raise _refuse(name, f"{metric} must be a number, and not a {type(value).__name__}") from None
    return found


def _refuse(name: str, rule: str) -> InvalidSpec:
    return InvalidSpec(Problem("function", name, rule))
