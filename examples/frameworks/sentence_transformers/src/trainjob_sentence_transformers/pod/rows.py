"""Columns of the rows, and checks of their values before torch is loaded."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from trainjob.frameworks.fine_tuning.row_checks import check_rows_of
from trainjob.frameworks.fine_tuning.row_rules import find_missing_value
from trainjob_sentence_transformers.pod.losses import LOSSES, NUMBERS
from trainjob_sentence_transformers.pod.run_arguments import RunArguments

__all__ = ["check_rows", "choose_columns"]


def check_rows(run: RunArguments) -> None:
    """Refuse rows that the loss cannot use.

    Raises:
        InvalidSpec: a dataset does not exist, a column is missing, or a value is of another kind.
    """
    loss = str(run.loss["name"])
    for path in filter(None, (run.dataset, run.eval_dataset)):
        check_rows_of(path, loss, run.columns, LOSSES[loss].columns, rule=partial(_find_problem, loss))


def choose_columns(loss: str, names: Collection[str]) -> list[str]:
    """Return the columns of the loss in their order.

    The trainer would take any other column for a further text.
    """
    return list(next(each for each in LOSSES[loss].columns if set(each) <= set(names)))


def _find_problem(loss: str, row: Mapping[str, Any], columns: Collection[str]) -> tuple[str, str] | None:
    """Return the column with which a row breaks a rule, and the rule; None for a good row."""
    for name in columns:
        value = row.get(name)
        if rule := find_missing_value(name, value) or _find_kind_problem(loss, name, value):
            return name, rule
    return None


def _find_kind_problem(loss: str, name: str, value: Any) -> str:
    if name not in NUMBERS:
        return "" if isinstance(value, str) else f"it must be a text, but is {_show(value)}"
    if not isinstance(value, int | float) or not math.isfinite(value):
        return f"it must be a number, but is {_show(value)}"
    if loss == "CosineSimilarityLoss" and not -1 <= value <= 1:  # as those of STS, from 0 to 5
        return f"{_show(value)} is no cosine: scale the scores to -1 to 1, or use CoSENTLoss"
    return ""


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
