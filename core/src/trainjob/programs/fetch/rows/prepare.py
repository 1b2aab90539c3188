"""Preparation of the rows of a fetched dataset, from its files to the record's entries."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from trainjob.errors import INSTALLATION_FAILED, FetchError, TrainJobError
from trainjob.programs.fetch.folder import Folder, sync_file
from trainjob.programs.fetch.preparation import EVAL_FILE, SOURCE_FOLDER, TRAIN_FILE, WORK_FOLDER, Preparation
from trainjob.programs.fetch.record import RecordedFile
from trainjob.programs.fetch.rows.json_lines import contains_dates, is_representable, write_rows
from trainjob.programs.fetch.rows.splits import RowReader, hold_out, list_split_names, rename_columns, select_rows
from trainjob.programs.locked_library import import_library

__all__ = ["prepare_rows"]

_LOWEST_VERSION = 4  # older ones may run code in the dataset's folder
_BLOCK = 1 << 20  # bytes
_LONGEST_REASON = 300  # characters
_SEPARATORS = (";", "\t", "|")


def prepare_rows(
    root: Path, request: Preparation, sources: Iterable[RecordedFile], report: Callable[[str], None]
) -> list[RecordedFile]:
    """Write the requested rows as JSON Lines to the work folder.

    Returns the entries of the files for the record. The caller records and moves the files.

    Args:
        root: folder of the dataset, with the fetched files in `source`.
        request: the request.
        sources: entries of the fetched files.
        report: function that takes the lines for the log.

    Raises:
        InvalidSpec: the dataset does not have what the request names.
        FetchError: the rows cannot be read, JSON does not have a value, or `datasets` cannot be installed.
    """
    folder = Folder(root)
    _refuse_other_files(root, request)
    try:
        rows = _load_rows(root, request, report)
        parts = {path: _write_part(folder, path, rows.pop(path), report) for path in request.paths}
    except TrainJobError:
        raise
    except Exception as error:
        cause = error.__cause__ or error
        reason = " ".join(str(cause).split())[:_LONGEST_REASON]
        raise FetchError(
            f"the rows of {root / SOURCE_FOLDER} can't be prepared: {type(cause).__name__}: {reason}",
            hint="correct the file, in which commas separate the columns of CSV, or exclude it with ignore_patterns",
        ) from error
    mark = request.compute_mark(sources)
    return [RecordedFile(path, size, mark, sha256) for path, (size, sha256) in parts.items()]


def _refuse_other_files(root: Path, request: Preparation) -> None:
    """Refuse files beside the prepared ones, because a training would read them, too."""
    for path in request.paths:
        file = root / path
        others = sorted(each.name for each in file.parent.rglob("[!.]*") if each.is_file() and each != file)
        if others:
            raise FetchError(
                f"{file.parent} has files that this step has not written: {', '.join(others)}",
                hint="remove them, because a training would read them, too",
            )


def _import_datasets(report: Callable[[str], None]) -> None:
    """Import `datasets`, and install it first if the image does not contain it."""
    try:
        datasets = import_library("datasets", "programs.fetch.rows.lock")
    except (RuntimeError, ImportError, OSError) as failure:
        hint = "give an image with datasets, or an index that the pod reaches in env: PIP_INDEX_URL"
        raise FetchError(f"{INSTALLATION_FAILED}: {failure}", hint=hint) from failure
    if int(datasets.__version__.partition(".")[0]) < _LOWEST_VERSION:
        raise FetchError(
            f"the image contains datasets {datasets.__version__}, which may run code of a dataset",
            hint=f"use an image with datasets {_LOWEST_VERSION} or later, or without it",
        )
    datasets.disable_progress_bars()
    report(f"fetch: preparing the rows with datasets {datasets.__version__}")


def _load_rows(root: Path, request: Preparation, report: Callable[[str], None]) -> dict[str, Any]:
    """Return the `Dataset` of each file to write."""
    _import_datasets(report)
    reader = RowReader.open(root / SOURCE_FOLDER, request.subset, root / WORK_FOLDER)
    if reader.unread:
        report(f"fetch: not read, because datasets reads one format of a dataset: {', '.join(reader.unread)}")
    notations = {"split": reader.choose_split("split", request.split)}
    if request.eval_split:
        notations["eval_split"] = reader.choose_split("eval_split", request.eval_split)
    names = {field: dict.fromkeys(list_split_names(notation)) for field, notation in notations.items()}
    splits = {}
    for name in dict.fromkeys(name for found in names.values() for name in found):
        splits[name] = reader.read(name)
        report(f"fetch: the split {name} has {len(splits[name])} rows, columns {', '.join(splits[name].column_names)}")
        _refuse_columns(root / SOURCE_FOLDER, reader.loader, splits[name])
        if dates := [field.name for field in splits[name].features.arrow_schema if contains_dates(field.type)]:
            report(f"fetch: the dates and times in {', '.join(dates)} are written as datasets reads them, in ISO 8601")
    selected = [
        rename_columns(select_rows({name: splits[name] for name in names[field]}, field, notation), request.columns)
        for field, notation in notations.items()
    ]
    if request.eval_fraction:
        selected = list(hold_out(selected[0], request.eval_fraction))
    return dict(zip((TRAIN_FILE, EVAL_FILE), selected, strict=False))


def _refuse_columns(source: Path, loader: str, rows: Any) -> None:
    """Refuse columns that JSON cannot hold, and CSV with another separator than a comma."""
    names = rows.column_names
    if loader == "csv" and len(names) == 1 and (found := next((each for each in _SEPARATORS if each in names[0]), "")):
        raise FetchError(
            f"the columns of {source} are separated by {found!r}: {names[0]}", hint="separate them by commas"
        )
    for field in rows.features.arrow_schema:
        if not is_representable(field.type):
            raise FetchError(
                f"the column {field.name} of {source} has values that JSON Lines can't hold: {field.type}",
                hint="omit the fields that prepare the rows, and train on the files as they are",
            )


def _write_part(folder: Folder, path: str, rows: Any, report: Callable[[str], None]) -> tuple[int, str]:
    """Write the rows to a file in the work folder, and return its size and SHA-256."""
    part = f"{WORK_FOLDER}/{path}"
    with folder.open_for_appending(part) as target:
        write_rows(rows, target)
        sync_file(target)
    digest, size, lines = hashlib.sha256(), 0, 0
    with folder.open_for_reading(part) as written:
        while block := written.read(_BLOCK):
            digest.update(block)
            size += len(block)
            lines += block.count(b"\n")
    if lines != len(rows):
        raise FetchError(f"{folder.path / part} has {lines} lines, but {len(rows)} rows were written")
    report(f"fetch: {lines} rows for {'evaluation' if path == EVAL_FILE else 'training'} in {folder.path / path}")
    return size, digest.hexdigest()
