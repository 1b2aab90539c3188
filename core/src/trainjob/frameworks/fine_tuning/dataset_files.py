"""Columns of a dataset, read from its files before torch is loaded, and compared with those that a method needs."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem

__all__ = ["LOADERS", "Choices", "check_columns", "is_saved_dataset", "read_columns"]

LOADERS = {
    ".parquet": "parquet",
    ".jsonl": "json",
    ".json": "json",
    ".ndjson": "json",
    ".jsonl.gz": "json",
    ".json.gz": "json",
    ".csv": "csv",
}
"""Loaders of the library `datasets` by the end of a file's name."""
Choices = Sequence[tuple[str, ...]]
"""Sets of columns, of which a method needs one completely."""
_SAVED_DATASET, _SAVED_SPLITS, _FEATURES = "state.json", "dataset_dict.json", "dataset_info.json"


def check_columns(path: Path, method: str, columns: Mapping[str, str], choices: Choices) -> bool:
    """Refuse a dataset without the columns that a method needs.

    Args:
        path: folder or file with the rows.
        method: the method.
        columns: names of the dataset's columns by the method's names.
        choices: sets of columns, of which the method needs one completely.

    Returns:
        Whether the rows are conversations, for which the tokenizer needs a chat template.

    Raises:
        InvalidSpec: the dataset does not exist, has no readable file, or lacks a column. The error states the columns
            that it has and those that the method needs.
    """
    found = read_columns(path)
    if missing := [theirs for theirs in columns.values() if theirs not in found]:
        rule = f"{path} has the columns {_join(found)}"
        raise InvalidSpec(
            [Problem("config.columns", repr(name), f"there is no such column: {rule}") for name in missing]
        )
    renamed = {theirs: ours for ours, theirs in columns.items()}
    known = {renamed.get(name, name): nested for name, nested in found.items()}
    for names in choices:
        if set(names) <= set(known):
            return any(known[name] for name in names if name not in ("input_ids", "chosen_ids", "rejected_ids"))
    needed = " or ".join(" + ".join(names) for names in choices)
    rule = f"{method} needs {needed}: rename columns with columns={{'NAME': 'COLUMN'}}, or convert the dataset"
    raise InvalidSpec(Problem("dataset_path", f"a dataset with {_join(known)}", rule))


def read_columns(path: Path) -> dict[str, bool]:
    """Return the columns of a dataset by name.

    The value says whether the column contains lists, such as conversations.

    Raises:
        InvalidSpec: there is no file with rows, or the first one cannot be read.
    """
    if not path.exists():
        beside = sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else []
        raise _refuse(path, f"it does not exist; {path.parent} contains {_join(beside)}")
    try:
        if saved := _find_saved_dataset(path):
            return _read_features(saved)
        file = _find_first_file(path)
        return _READERS[LOADERS[get_suffix(file)]](file)
    except InvalidSpec:
        raise
    except Exception as error:  # noqa: BLE001 - the readers raise errors of many libraries for damaged files
        raise _refuse(path, f"its columns cannot be read: {type(error).__name__}: {error}") from None


def is_saved_dataset(path: Path) -> bool:
    """Return whether `Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote this folder."""
    return (path / _SAVED_DATASET).is_file() or (path / _SAVED_SPLITS).is_file()


def get_suffix(file: Path) -> str:
    """Return the end of a file's name by which its loader is found; empty if none loads it."""
    return next((suffix for suffix in LOADERS if file.name.endswith(suffix)), "")


def _find_saved_dataset(path: Path) -> Path | None:
    """Return the folder of a saved dataset's training rows."""
    if (path / _SAVED_SPLITS).is_file():
        splits = json.loads((path / _SAVED_SPLITS).read_bytes())["splits"]
        return path / ("train" if "train" in splits else splits[0])
    return path if (path / _SAVED_DATASET).is_file() else None


def _find_first_file(path: Path) -> Path:
    """Return the first file with training rows.

    The library `datasets`, too, takes the split from the names of files.
    """
    if path.is_file():
        if not get_suffix(path):
            raise _refuse(path, f"its name must end with {', '.join(LOADERS)}")
        return path
    files = sorted(_find_files(path))
    if not files:
        listing = _join(sorted(each.name for each in path.iterdir()))
        raise _refuse(path, f"it has no file whose name ends with {', '.join(LOADERS)}; it contains {listing}")
    return next((file for file in files if "train" in file.name), files[0])


def _find_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not hidden and path.is_file() and get_suffix(path):
            yield path


def _read_features(folder: Path) -> dict[str, bool]:
    features = json.loads((folder / _FEATURES).read_bytes())["features"]
    return {name: isinstance(kind, list) or "feature" in kind for name, kind in features.items()}


def _read_parquet(file: Path) -> dict[str, bool]:
    import pyarrow.parquet
    from pyarrow.types import is_large_list, is_list

    schema = pyarrow.parquet.read_schema(file)
    return {field.name: is_list(field.type) or is_large_list(field.type) for field in schema}


def _read_json(file: Path) -> dict[str, bool]:
    with _open(file) as text:
        first = next((line for line in text if line.strip()), "")
        row: Any = None
        if first.lstrip().startswith("["):
            rows = json.loads(first + text.read())
            row = rows[0] if rows else {}
        else:
            row = json.loads(first)
    return {name: isinstance(value, list) for name, value in row.items()}


def _read_csv(file: Path) -> dict[str, bool]:
    with file.open(encoding="utf-8", newline="") as text:
        return dict.fromkeys(next(csv.reader(text)), False)


def _open(file: Path) -> io.TextIOBase:
    if file.name.endswith(".gz"):
        return io.TextIOWrapper(gzip.open(file), encoding="utf-8")
    return file.open(encoding="utf-8")


_READERS = {"parquet": _read_parquet, "json": _read_json, "csv": _read_csv}


def _refuse(path: Path, rule: str) -> InvalidSpec:
    return InvalidSpec(Problem("dataset_path", str(path), rule))


def _join(names: Any, limit: int = 12) -> str:
    shown = list(names)
    more = f" and {len(shown) - limit} more" if len(shown) > limit else ""
    return (", ".join(shown[:limit]) or "nothing") + more
