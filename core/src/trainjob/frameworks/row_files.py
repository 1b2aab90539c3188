"""Rows in files of JSON Lines or Parquet, and what identifies files on a workspace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem

__all__ = ["are_messages", "describe_files", "describe_row", "iterate_rows"]

_SUFFIXES = (".jsonl", ".parquet")


def iterate_rows(path: Path, field: str) -> Iterator[tuple[str, Any]]:
    """Yield each row with its place, such as `/workspace/dataset/eval.jsonl, row 3`.

    Args:
        path: a file in JSON Lines or Parquet, or a folder with such files, which are read in the order of their names.
        field: field of the request with the path, for errors.

    Raises:
        InvalidSpec: a row is not JSON, or the image cannot read Parquet.
    """
    for file in _list_files(path):
        for number, row in enumerate(_read_file(file, field), start=1):
            yield f"{file}, row {number}", row


def _list_files(path: Path) -> list[Path]:
    """Return the files with rows, without hidden ones such as the record of a fetch.

    A fetch that has prepared rows keeps the files that it has read in `source` (trainjob.programs.fetch.preparation).
    """
    found = [path]
    if path.is_dir():
        is_prepared = (path / "data" / "train.jsonl").is_file()
        parts = {file: file.relative_to(path).parts for file in path.rglob("*")}
        visible = [file for file in parts if not any(part.startswith(".") for part in parts[file])]
        found = [file for file in visible if not (is_prepared and parts[file][0] == "source")]
    return sorted(file for file in found if file.suffix in _SUFFIXES and file.is_file())


def _read_file(file: Path, field: str) -> Iterator[Any]:
    if file.suffix == ".parquet":
        try:
            from pyarrow.parquet import ParquetFile  # not before the libraries are installed
        except ImportError:
            rule = f"it must contain pyarrow, because the rows are in {file.name}"
            raise InvalidSpec(Problem("image", "the image of this pod", rule)) from None
        for batch in ParquetFile(file).iter_batches():
            yield from batch.to_pylist()
        return
    with file.open(encoding="utf-8") as opened:
        lines = list(opened)  # the caller may stop after any row, and the file must be closed then
    for number, line in enumerate(lines, start=1):
        try:
            yield json.loads(line)
        except ValueError as error:
            raise InvalidSpec(Problem(field, f"{file}, row {number}", f"it must be JSON: {error}")) from None


def are_messages(values: Sequence[Any]) -> bool:
    """Return whether values are the messages of a conversation; False without any."""
    return bool(values) and all(isinstance(each, Mapping) and each.get("role") for each in values)


def describe_row(row: Any) -> str:
    """Return the names of a row's fields, or its type if it has none, for errors."""
    return ", ".join(row) if isinstance(row, Mapping) else type(row).__name__


def describe_files(folder: Path) -> list[tuple[str, int, int]]:
    """Return path, size in bytes and time of the last change in ns of each file.

    Args:
        folder: a folder with the files, or one file.
    """
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    found = ((path, path.stat()) for path in paths if path.is_file())
    return [(str(path.relative_to(folder)), status.st_size, status.st_mtime_ns) for path, status in found]
