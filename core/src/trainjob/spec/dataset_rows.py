"""Fields of requests about the rows of a dataset: splits and columns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator

from trainjob.spec.base import invalid_field

__all__ = ["ColumnNames", "SplitNotation", "Subset"]

# The notation of datasets 5.2 (arrow_reader.py, _SUB_SPEC_RE).
_ROWS, _SHARE = r"(?:-?\d+(?:_\d+)*)?", r"(?:-?(?:\d{1,2}|100)%)?"
_SLICE = rf"\[(?:{_ROWS}:{_ROWS}|{_SHARE}:{_SHARE})\](?:\((?:closest|pct1_dropremainder)\))?"
_PART = rf"\w+(?:\.\w+)*(?:{_SLICE})?"
_SPLIT = re.compile(rf"{_PART}(?:\s*\+\s*{_PART})*", re.ASCII)
_SUBSET = re.compile(r"(?!-)[^<>:/\\|?*\x00-\x1f]{1,256}")  # names that datasets 5.2 allows (naming.py)
_COLUMN = re.compile(r"[^\x00-\x1f]{1,256}")


def _validate_split(notation: str) -> str:
    if not _SPLIT.fullmatch(notation):
        raise invalid_field(
            "", notation, "it must be a split or a part of one, such as train, train[:5000] or train[90%:]"
        )
    return notation


def _validate_subset(name: str) -> str:
    if not _SUBSET.fullmatch(name):
        raise invalid_field("", name, "it must be the name of a configuration in the dataset's README.md, such as main")
    return name


def _validate_columns(columns: Mapping[str, str]) -> Mapping[str, str]:
    for ours, theirs in columns.items():
        if not _COLUMN.fullmatch(ours) or not _COLUMN.fullmatch(theirs):
            raise invalid_field(ours, theirs, "a column's name has 1 to 256 characters without control characters")
    if repeated := [name for name in columns.values() if list(columns.values()).count(name) > 1]:
        raise invalid_field("", repeated[0], "several names mean the same column of the dataset: give each once")
    return columns


SplitNotation = Annotated[str, AfterValidator(_validate_split)]
"""Rows of a dataset in the notation of the library `datasets`, such as `train[:5000]`."""
Subset = Annotated[str, AfterValidator(_validate_subset)]
"""Name of a configuration in a dataset's README.md."""
ColumnNames = Annotated[Mapping[str, str], AfterValidator(_validate_columns)]
"""Names of a dataset's columns by other names for them."""
