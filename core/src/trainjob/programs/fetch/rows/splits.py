"""The rows of a dataset's splits, as the library `datasets` reads them from a folder."""

from __future__ import annotations

import glob
import re
import warnings
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem, ProblemKind

__all__ = ["RowReader", "hold_out", "list_split_names", "rename_columns", "select_rows"]

_SAVED = ("state.json", "dataset_dict.json")  # files that save_to_disk writes
_SEED = 42
_ROW_FILES = (".arrow", ".csv", ".json", ".jsonl", ".ndjson", ".parquet", ".tsv")


def list_split_names(notation: str) -> list[str]:
    """Return the names of the splits in the notation of `datasets`: `train[:9]+test`."""
    return re.findall(r"(?:^|\+)\s*([\w.]+)", notation)


@dataclass(frozen=True)
class RowReader:
    """Reader of the splits of one dataset.

    Attributes:
        loader: name of the loader in `datasets`, such as `csv`; empty for a dataset that `save_to_disk` wrote.
        splits: names of the splits, in the order of the dataset.
        read: function that returns the rows of a split as a `Dataset`.
        unread: files of other formats beside those of the splits, because `datasets` reads one format of a dataset.
    """

    loader: str
    splits: Sequence[str]
    read: Callable[[str], Any]
    unread: Sequence[str] = ()

    @classmethod
    def open(cls, folder: Path, subset: str, cache: Path) -> RowReader:
        """Return the reader of a folder as on the Hub, or of one that `save_to_disk` wrote.

        Only the files of the splits that are read are converted, because another split may have other columns.

        Args:
            folder: folder with the files.
            subset: configuration in the folder's README.md; empty means the default.
            cache: folder for the files of `datasets`.

        Raises:
            InvalidSpec: there is no such subset, or a subset must be named.
        """
        import datasets

        if any((folder / name).is_file() for name in _SAVED):
            if subset:
                raise _refuse("subset", subset, "a dataset that `save_to_disk` wrote has no subsets")
            saved = datasets.load_from_disk(str(folder))
            splits = saved if isinstance(saved, datasets.DatasetDict) else {"train": saved}
            return cls("", list(splits), splits.__getitem__)
        name, folder = _choose_subset(folder, subset), folder.resolve()
        builder = datasets.load_dataset_builder(str(folder), name, cache_dir=str(cache))
        files = {
            str(split): [Path(file).resolve() for file in found]
            for split, found in (builder.config.data_files or {}).items()
        }
        patterns = {
            split: [glob.escape(file.relative_to(folder).as_posix()) for file in found]
            for split, found in files.items()
        }
        loader = type(builder).__module__.rpartition(".")[2]
        # Otherwise pandas takes the first column for an index if rows have more values than the header (pandas 3.1).
        options = {"index_col": False} if loader == "csv" else {}

        def read(split: str) -> Any:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "Length of header or names does not match length of data")
                return datasets.load_dataset(
                    str(folder),
                    name,
                    data_files={split: patterns[split]},
                    split=split,
                    features=builder.info.features,  # otherwise those of README.md do not count beside data_files
                    cache_dir=str(cache),
                    **options,
                )

        return cls(
            loader, list(files), read, _list_unread(folder, {file for found in files.values() for file in found})
        )

    def choose_split(self, field: str, notation: str) -> str:
        """Return the rows to read: the given ones, or `train`, or the only split.

        Raises:
            InvalidSpec: there is no such split, or a split must be named.
        """
        if not notation:
            if "train" in self.splits or len(self.splits) == 1:
                return "train" if "train" in self.splits else self.splits[0]
            rule = f"name one, because none is train: the dataset has the splits {', '.join(self.splits)}"
            raise InvalidSpec(Problem(field, "", rule, ProblemKind.MISSING))
        if any(name not in self.splits for name in list_split_names(notation)):
            raise _refuse(field, notation, f"there is no such split: the dataset has {', '.join(self.splits)}")
        return notation


def select_rows(splits: Mapping[str, Any], field: str, notation: str) -> Any:
    """Return the rows that a text in the notation of `datasets` means.

    Args:
        splits: the `Dataset` of each split that the text names.
        field: name of the field with the text.
        notation: the text.

    Raises:
        InvalidSpec: the text has a wrong form, or means no rows.
    """
    import datasets

    try:
        parts = datasets.ReadInstruction.from_spec(notation).to_absolute(
            {name: len(rows) for name, rows in splits.items()}
        )
    except (AssertionError, ValueError) as error:
        raise _refuse(field, notation, str(error)) from None
    chosen = [splits[part.splitname].select(range(part.from_, part.to)) for part in parts if part.from_ < part.to]
    if not chosen:
        counts = ", ".join(f"{name} has {len(rows)} rows" for name, rows in splits.items())
        raise _refuse(field, notation, f"it means no rows: {counts}")
    return datasets.concatenate_datasets(chosen)


def hold_out(rows: Any, fraction: float) -> tuple[Any, Any]:
    """Return the rows for training and those for evaluation.

    They are chosen at random with a fixed seed.

    Raises:
        InvalidSpec: too few rows remain.
    """
    try:
        parts = rows.train_test_split(test_size=fraction, seed=_SEED)
    except ValueError:
        rule = f"none of the {len(rows)} rows would be left for training"
        raise InvalidSpec(Problem("eval_fraction", str(fraction), rule)) from None
    return parts["train"], parts["test"]


def rename_columns(rows: Any, columns: Mapping[str, str]) -> Any:
    """Return the rows with other names of columns.

    Args:
        rows: a `Dataset`.
        columns: names of the dataset's columns by their new names.

    Raises:
        InvalidSpec: a column does not exist, or two would have the same name.
    """
    names = rows.column_names
    rule = f"the dataset has the columns {', '.join(names)}"
    if missing := [theirs for theirs in columns.values() if theirs not in names]:
        raise InvalidSpec([Problem("columns", repr(name), f"there is no such column: {rule}") for name in missing])
    kept = set(names) - set(columns.values())
    if clashes := sorted(kept & set(columns)):
        raise InvalidSpec(
            [
                Problem(
                    f"columns.{name}", repr(columns[name]), f"there is another column {name}, which is kept: {rule}"
                )
                for name in clashes
            ]
        )
    return rows.rename_columns({theirs: ours for ours, theirs in columns.items()})


def _list_unread(folder: Path, read: Set[Path]) -> Sequence[str]:
    beside = (path for parent in {file.parent for file in read} for path in parent.iterdir())
    unread = {path for path in beside if path.suffix.lower() in _ROW_FILES} - read
    return sorted(path.relative_to(folder).as_posix() for path in unread)


def _choose_subset(folder: Path, subset: str) -> str | None:
    import datasets

    names = datasets.get_dataset_config_names(str(folder))
    if subset and subset not in names:
        raise _refuse("subset", subset, f"there is no such subset: the dataset has {', '.join(names)}")
    if subset or datasets.get_dataset_default_config_name(str(folder)):
        return subset or None
    rule = f"name one of the dataset's subsets: {', '.join(names)}"
    raise InvalidSpec(Problem("subset", "", rule, ProblemKind.MISSING))


def _refuse(field: str, value: str, rule: str) -> InvalidSpec:
    return InvalidSpec(Problem(field, repr(value), rule))
