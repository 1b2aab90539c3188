"""Check of the rows of a dataset before torch is loaded.

The rows are those that the library `datasets` gives the training, so the check never refuses what loads and trains.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem
from trainjob.frameworks.fine_tuning.dataset_files import (
    RowFile,
    join_names,
    list_other_files,
    list_row_files,
    refuse_dataset,
)
from trainjob.frameworks.fine_tuning.row_rules import find_problem, find_warning, is_conversation

__all__ = ["MAX_ROWS", "CheckedRows", "Choices", "RowRule", "check_rows_of"]

Choices = Sequence[tuple[str, ...]]
"""Sets of columns, of which a method needs one completely."""
RowRule = Callable[[Mapping[str, Any], Collection[str]], tuple[str, str] | None]
"""Function that returns the column with which a row breaks a rule, and the rule; None for a good row."""
_ALSO_READ = ("prompt",)  # beside pairs of answers, if the dataset has it
MAX_ROWS = 200_000
"""Rows of a dataset that are checked; a check of more would delay the training by more than some seconds."""


@dataclass
class CheckedRows:
    """Result of a check.

    Attributes:
        columns: names of all columns, under the method's names.
        has_conversations: whether rows are conversations, for which the tokenizer needs a chat template.
        warnings: number of rows by the warning about them.
    """

    columns: set[str] = field(default_factory=set)
    has_conversations: bool = False
    warnings: Counter[str] = field(default_factory=Counter)


def check_rows_of(
    path: Path, method: str, columns: Mapping[str, str], choices: Choices, rule: RowRule = find_problem
) -> CheckedRows:
    """Refuse rows that a method cannot use, and print warnings about others.

    Args:
        path: folder or file with the rows.
        method: the method.
        columns: names of the dataset's columns by the method's names.
        choices: sets of columns, of which the method needs one completely.
        rule: function that returns the column with which a row breaks a rule, and the rule; None for a good row.

    Raises:
        InvalidSpec: the dataset cannot be read, lacks a column, or has a row that the training cannot use. The error
            names the file, the number of the row, counted from 1, and the column.
    """
    files, found, count = list_row_files(path), CheckedRows(), 0
    if others := list_other_files(path, files):
        print(
            f"dataset: {join_names(others)} of {path} are not read, because its other files have another format",
            flush=True,
        )
    for file, number, row in itertools.islice(_read_rows(path, files, method, columns, choices, found), MAX_ROWS):
        count += 1
        if problem := rule(row, list(row)):
            raise refuse_dataset(file, f"row {number}, column {problem[0]}: {problem[1]}")
        found.has_conversations |= any(is_conversation(value) for value in row.values())
        if warning := find_warning(row, row):
            found.warnings[warning] += 1
    if not count:
        raise refuse_dataset(path, "it has no rows")
    if count == MAX_ROWS:
        print(f"dataset: the first {count} rows of {path} were checked", flush=True)
    for warning, times in found.warnings.items():
        print(f"dataset: {times} of {count} rows of {path} have {warning}", flush=True)
    return found


def _read_rows(
    path: Path,
    files: Sequence[RowFile],
    method: str,
    columns: Mapping[str, str],
    choices: Choices,
    found: CheckedRows,
) -> Iterator[tuple[Path, int, dict[str, Any]]]:
    """Yield file, number and used values of each row; add the names of the columns to `found`."""
    renamed = {theirs: ours for ours, theirs in columns.items()}
    for file in files:
        numbers = itertools.count(1)
        for batch in _read(file):
            _refuse_missing(path, columns, list(batch))
            values = {renamed.get(name, name): column for name, column in batch.items()}
            if found.columns and set(values) != found.columns and file is not files[0]:
                before = join_names(sorted(found.columns))
                rule = f"{file.path.name} has {join_names(values)}, the files before it have {before}"
                raise refuse_dataset(path, f"all files must have the same columns: {rule}")
            found.columns |= set(values)
            needed = _choose(method, list(values), choices)
            read = [*needed, *(name for name in _ALSO_READ if name in values and "chosen" in needed)]
            for row in zip(*(values[name] for name in read), strict=True):
                used = {name: value for name, value in zip(read, row, strict=True) if name in needed or value}
                yield file.path, next(numbers), used


def _read(file: RowFile) -> Iterator[dict[str, list[Any]]]:
    try:
        yield from file.read_batches()
    except Exception as error:  # noqa: BLE001 - the readers raise errors of many libraries for damaged files
        cause = error.__cause__ or error
        if isinstance(cause, StopIteration):  # of a file without bytes
            return
        reason = " ".join(str(cause).split())[:300] or type(cause).__name__
        advice = "; save it in UTF-8" if isinstance(cause, UnicodeDecodeError) else ""
        raise refuse_dataset(file.path, f"it cannot be read: {reason}{advice}") from None


def _refuse_missing(path: Path, columns: Mapping[str, str], found: Sequence[str]) -> None:
    if missing := [theirs for theirs in columns.values() if theirs not in found]:
        rule = f"{path} has the columns {join_names(found)}"
        raise InvalidSpec(
            [Problem("config.columns", repr(name), f"there is no such column: {rule}") for name in missing]
        )


def _choose(method: str, names: Sequence[str], choices: Choices) -> list[str]:
    """Return the columns that the method reads."""
    for needed in choices:
        if set(needed) <= set(names):
            return list(needed)
    needs = " or ".join(" + ".join(each) for each in choices)
    rule = f"{method} needs {needs}: rename columns with columns={{'NAME': 'COLUMN'}}, or convert the dataset"
    if len(names) == 1 and (found := next((each for each in (";", "\t", "|") if each in names[0]), "")):
        rule = f"{method} needs {needs}; its columns are separated by {found!r}: separate them by commas"
    raise InvalidSpec(Problem("dataset_path", f"a dataset with {join_names(names)}", rule))
