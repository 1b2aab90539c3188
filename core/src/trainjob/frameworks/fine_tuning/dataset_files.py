"""Files of a dataset, as the library `datasets` chooses them, and their rows as a stream.

Nothing here loads torch, so a program checks rows within seconds.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainjob.errors import InvalidSpec, Problem

__all__ = ["RowFile", "join_names", "list_other_files", "list_row_files", "refuse_dataset"]

_SAVED_DATASET, _SAVED_SPLITS = "state.json", "dataset_dict.json"
_METADATA = ("dataset_info.json", "dataset_infos.json", "config.json")  # datasets 5.2, data_files.py
_FORMATS = {".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}
_BATCH = 1000  # rows


@dataclass(frozen=True)
class RowFile:
    """A file with rows of the training, or a dataset that `save_to_disk` wrote.

    Attributes:
        path: path of the file or folder.
        folder: folder whose README.md has the file's options, if there is one.
        loader: name of the loader in `datasets`, such as `json`; empty for a saved dataset.
    """

    path: Path
    folder: Path
    loader: str

    @property
    def pattern(self) -> str:
        """Pattern for `data_files` that only this file matches."""
        return glob.escape(self.path.relative_to(self.folder).as_posix())

    def read_batches(self) -> Iterator[dict[str, list[Any]]]:
        """Yield the rows in batches, each a list of values by column.

        Raises:
            Exception: of many libraries, if the file is damaged.
        """
        import datasets

        datasets.config.TORCH_AVAILABLE = False  # otherwise the reader loads torch (datasets 5.2, iterable_dataset.py)
        if self.loader:
            rows = datasets.load_dataset(str(self.folder), data_files=self.pattern, split="train", streaming=True)
        else:
            rows = datasets.load_from_disk(str(self.path))
        yield from rows.iter(batch_size=_BATCH)


def list_row_files(path: Path) -> list[RowFile]:
    """Return the files from which a training reads its rows, in order.

    Args:
        path: a file; a folder as on the Hub, of which the split `train` is taken, or the only one; or a folder that
            `save_to_disk` wrote.

    Raises:
        InvalidSpec: the path does not exist, has no files with rows, or several configurations or formats.
    """
    if not path.exists():
        beside = sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else []
        raise refuse_dataset(path, f"it does not exist; {path.parent} contains {join_names(beside)}")
    if saved := _find_saved_dataset(path):
        return [RowFile(saved, saved, "")]
    # datasets resolves a folder's links, but not those of a file's folder (datasets 5.2, load.py).
    folder = (path if path.is_dir() else path.parent).resolve()
    try:
        loader, splits = _choose_files(folder, None if path.is_dir() else path.name)
    except InvalidSpec:
        raise
    except Exception as error:  # noqa: BLE001 - datasets has no common base class of errors
        names = join_names(sorted(each.name for each in path.iterdir())) if path.is_dir() else path.name
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise refuse_dataset(path, f"it has no rows that can be read: {reason}; it contains {names}") from None
    split = "train" if "train" in splits else next(iter(splits))
    if split != "train" and len(splits) > 1:
        raise refuse_dataset(path, f"it has the splits {', '.join(splits)}, and none is train: name one file")
    return [RowFile(file, folder, loader) for file in splits[split]]


def _find_saved_dataset(path: Path) -> Path | None:
    """Return the folder of a saved dataset's training rows."""
    if (path / _SAVED_SPLITS).is_file():
        splits = json.loads((path / _SAVED_SPLITS).read_bytes())["splits"]
        return path / ("train" if "train" in splits else splits[0])
    return path if (path / _SAVED_DATASET).is_file() else None


def _choose_files(folder: Path, name: str | None) -> tuple[str, dict[str, list[Path]]]:
    """Return the loader, and the files of each split, or the one with a name."""
    from datasets import get_dataset_config_names, load_dataset_builder

    if name:
        builder = load_dataset_builder(str(folder), data_files=glob.escape(name))
    else:
        names = get_dataset_config_names(str(folder))
        if len(names) > 1 and "default" not in names:
            rule = "name the folder or the file of one in dataset_path"
            raise refuse_dataset(folder, f"its README.md has the configurations {join_names(names)}: {rule}")
        builder = load_dataset_builder(str(folder))
    splits = {str(split): [Path(file) for file in files] for split, files in builder.config.data_files.items()}
    return type(builder).__module__.rpartition(".")[2], splits


def list_other_files(path: Path, files: Sequence[RowFile]) -> list[str]:
    """Return the files in other formats, which `datasets` leaves out without a word."""
    loader = files[0].loader
    others = []
    for file in sorted(path.rglob("*") if path.is_dir() and loader else ()):
        below = file.relative_to(path)
        hidden = any(part.startswith((".", "__")) for part in below.parts)
        suffix = file.suffixes[-2:-1] if file.suffix == ".gz" else file.suffixes[-1:]
        if not hidden and file.name not in _METADATA and _FORMATS.get("".join(suffix), loader) != loader:
            others.append(below.as_posix())
    return others


def refuse_dataset(path: Path, rule: str) -> InvalidSpec:
    """Return the error for a dataset."""
    return InvalidSpec(Problem("dataset_path", str(path), rule))


def join_names(names: Iterable[str], limit: int = 12) -> str:
    """Return names for a message, at most `limit`; one with invisible characters is in quotes."""
    shown = [name if name.isprintable() and name.strip() == name and name else repr(name) for name in names]
    more = f" and {len(shown) - limit} more" if len(shown) > limit else ""
    return (", ".join(shown[:limit]) or "nothing") + more
